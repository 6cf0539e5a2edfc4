"""Arms that never wait for their device launch until its queue is full, and only then run at its speed."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from clocks import FakeClock

from perfsweep.pipelines.trial.timing import steady
from perfsweep.pipelines.trial.timing.recorder import Recorder, Series
from perfsweep.pipelines.trial.timing.steady import region_alarm

QUEUE = 1024
"""Launches that CUDA takes before it makes the host wait."""

SHAPES = list(itertools.product((20, 60, 200), (3_000, 5_000), (1.2, 2.0, 6.0)))
"""Launches an iteration, host time of one in ns, and device time as a multiple of it."""


def region(
    launches: int, host_ns: int, ratio: float, iterations: int = 60, events: int = 512, seed: int = 0
) -> Series:
    """A region of a device-bound loop that never waits, with 2 % of noise on both sides."""
    clock = FakeClock(tick_ns=20, events=events, queue=QUEUE)
    draw = random.Random(seed)
    recorder = Recorder(clock)
    recorder.start()
    for _ in range(iterations):
        scale = draw.gauss(1, 0.02)
        for _ in range(launches):
            clock.advance(round(host_ns * draw.gauss(1, 0.02)))
            clock.launch(round(host_ns * ratio * scale))
        recorder.lap()
    recorder.stop()
    return recorder.series()


@pytest.fixture(scope="module")
def series() -> list[Series]:
    return [region(*shape) for shape in SHAPES]


def test_a_region_is_judged_by_its_device(series: list[Series]) -> None:
    assert [region_alarm(one.judged_ns(1), one.flags) for one in series] == [None] * len(series)


def test_a_device_that_slows_down_is_still_noticed() -> None:
    one = region(60, 3_000, 2.0, iterations=80)
    times = one.judged_ns(1).copy()
    times[:40] = (times[:40] * 0.8).astype(np.int64)
    assert "later half" in str(region_alarm(times, one.flags))


def test_iterations_whose_events_ran_out_are_left_out_of_the_judgement() -> None:
    one = region(20, 3_000, 6.0, events=16)
    assert 0 < one.dropped < 60
    assert len(one.judged_ns(1)) == 60 - one.dropped
    assert len(one.judged_ns(10)) == 0  # whole periods cannot be put together


class Paced:
    """Steps-shaped work on a device, as long as one likes."""

    shape, cadence = "steps", 1

    host_ns = 1_000

    def __init__(self, clock: FakeClock, device_ns: int) -> None:
        self._clock, self._device_ns = clock, device_ns

    def step(self, marks: Any) -> None:
        self._clock.advance(self.host_ns)
        self._clock.launch(self._device_ns)


class Silent:
    """Counts no compilation."""

    def poll(self) -> int:
        return 0


SPEC = SimpleNamespace(measure=SimpleNamespace(warmup_max=20), world=1, round=0, rare=None)


@pytest.mark.parametrize(("device_ns", "iterations"), [(10_000_000, 100), (400_000_000, 5)])
def test_a_warm_up_on_a_device_lasts_a_second_of_its_time(device_ns: int, iterations: int) -> None:
    clock = FakeClock(events=16)
    warm = steady.warm_up(Paced(clock, device_ns), clock, Silent(), SPEC)  # type: ignore[arg-type]
    assert len(warm.walls_ns) == iterations
    assert clock.synchronisations == iterations
    assert min(warm.walls_ns) >= device_ns


def test_a_long_cadence_is_run_whole_in_the_first_round_and_for_two_seconds_in_others() -> None:
    for number, iterations in ((0, 300), (1, 100)):
        clock, spec = FakeClock(tick_ns=1000), SimpleNamespace(**{**vars(SPEC), "round": number})
        work = Paced(clock, 0)
        work.cadence, work.host_ns = 300, 19_999_000
        warm = steady.warm_up(work, clock, Silent(), spec)  # type: ignore[arg-type]
        assert iterations <= len(warm.walls_ns) <= 1.5 * iterations
