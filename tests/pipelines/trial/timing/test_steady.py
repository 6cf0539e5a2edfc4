"""When a warm-up may end, and when a region is doubted, on a host and on a device."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from clocks import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from perfsweep.pipelines.trial.timing import steady
from perfsweep.pipelines.trial.timing.recorder import Recorder
from perfsweep.pipelines.trial.timing.steady import Warm, WarmUp, mser5, region_alarm

MS = 1_000_000


def noisy(count: int, seed: int = 0, sd: float = 0.04, correlation: float = 0.5) -> np.ndarray:
    """[count] iteration times of a steady machine, neighbours alike, in nanoseconds."""
    rng = np.random.default_rng(seed)
    log_times = np.zeros(count)
    shocks = rng.normal(0, sd * math.sqrt(1 - correlation**2), count)
    for i in range(count):
        log_times[i] = (correlation * log_times[i - 1] if i else 0.0) + shocks[i]
    return np.exp(log_times) * MS


def spiky(count: int, seed: int) -> np.ndarray:
    """A steady machine on which one iteration in fifty takes 1.5 to 4 times as long."""
    rng = np.random.default_rng(seed)
    return noisy(count, seed) * np.where(rng.random(count) < 0.02, rng.uniform(1.5, 4, count), 1.0)


def slow_start(count: int, factors: list[float], seed: int = 0) -> np.ndarray:
    """A steady machine whose first iterations take a multiple."""
    times = noisy(count, seed)
    times[: len(factors)] *= factors
    return times


def mser5_by_its_definition(times: np.ndarray) -> int:
    """The formula, one cut at a time."""
    z = [np.mean(np.log(times[i : i + 5])) for i in range(0, len(times) - 4, 5)]
    m = len(z)
    errors = (
        [sum((v - np.mean(z[d:])) ** 2 for v in z[d:]) / (m - d) ** 2 for d in range(m // 2 + 1)]
        if m > 1
        else [0.0]
    )
    # Sums in another order differ in the last digits; a cut counts as better only beyond them.
    best = min(errors)
    return 5 * next(d for d, error in enumerate(errors) if error <= best * (1 + 1e-9) + 1e-18)


@given(st.lists(st.floats(1.0, 1e9), max_size=80))
def test_mser_is_its_definition(times: list[float]) -> None:
    cut = mser5(times)
    expected = mser5_by_its_definition(np.array(times))
    if cut != expected:  # two cuts may be equally good to the last digits
        z = np.log(np.array(times)[: len(times) // 5 * 5]).reshape(-1, 5).mean(axis=1)
        errors = [np.var(z[d // 5 :]) / len(z[d // 5 :]) for d in (cut, expected)]
        assert errors[0] == pytest.approx(errors[1], rel=1e-6, abs=1e-12)


def observe(times: np.ndarray, compiled: tuple[int, ...] = (), warmup_max: int = 150) -> WarmUp:
    """A warm-up that saw iterations until it settled."""
    warm = WarmUp(warmup_max)
    for i, time in enumerate(times):
        warm.observe(int(time), i in compiled)
        if warm.settled:
            break
    return warm


def test_a_warm_up_of_equal_iterations_ends_after_five_or_three_without_compiling() -> None:
    assert observe(np.full(50, MS)).iterations == 5
    assert observe(np.full(50, MS), (4, 6, 8)).iterations == 12


def test_steady_noise_does_not_prolong_a_warm_up_much() -> None:
    lengths = [observe(noisy(150, seed)).iterations for seed in range(200)]
    # Five would do; a chance pattern of the noise costs a few more.
    assert np.mean(lengths) < 7
    assert np.quantile(lengths, 0.95) <= 12


def test_a_warm_up_ends_at_its_limit_and_says_that_it_did_not_settle() -> None:
    warm = observe(np.geomspace(100, 1, 40) * MS, warmup_max=20)
    assert (warm.iterations, warm.settled, warm.exhausted) == (20, True, True)


def test_a_steady_region_raises_no_alarm() -> None:
    alarms = [region_alarm(spiky(200, seed)) for seed in range(200)]
    # Two conditions must agree: one region in a hundred may be doubted by chance.
    assert sum(alarm is not None for alarm in alarms) <= 4


def test_a_region_whose_first_half_was_slower_is_doubted_in_words() -> None:
    alarm = region_alarm(slow_start(200, [1.12] * 100))
    assert alarm is not None
    assert "the first 100 of 200 iterations differ from the rest: the later half is" in alarm
    assert alarm.endswith("faster")


def test_periodic_work_is_judged_over_whole_periods() -> None:
    times = noisy(400, 3)
    times[::10] *= 30
    assert region_alarm(times, cadence=10) is None
    times[:200] *= 1.15
    alarm = region_alarm(times, cadence=10)
    assert alarm is not None
    assert "of 400 iterations" in alarm


def test_a_region_of_fewer_than_twenty_iterations_is_never_doubted() -> None:
    times = slow_start(19, [3.0] * 9)
    assert region_alarm(times) is None
    assert region_alarm(slow_start(20, [3.0] * 10)) is not None


@pytest.mark.parametrize(
    ("walls", "cadence", "rare"),
    [
        ([9, *[1.0] * 17, 4, 1], 20, (18,)),
        ([9, *[1.0] * 17, 4, 1.2], 20, (18,)),
        ([*[1.0] * 9, 1.5, *[1.0] * 9, 1.0], 10, (9,)),
        ([9, 8, 7, 6, 5, 1, 1, 1, 1, 1, 1, 1], 12, ()),
        ([9, *[1.0] * 17], 20, None),
        ([1.0] * 6, 1, ()),
    ],
    ids=["an evaluation", "noise", "seen once of twice", "warm-up itself", "not all seen", "no cadence"],
)
def test_rare_work_is_what_takes_a_quarter_longer_than_a_usual_iteration(
    walls: list[float], cadence: int, rare: tuple[int, ...] | None
) -> None:
    assert Warm([round(wall * MS) for wall in walls], True).rare(cadence) == rare


def test_iterations_whose_events_ran_out_are_left_out_of_the_judgement() -> None:
    clock = FakeClock(tick_ns=20, events=16)
    recorder = Recorder(clock)
    recorder.start()
    for _ in range(60):
        for _ in range(20):
            clock.advance(3_000)
            clock.launch(18_000)
        recorder.lap()
    recorder.stop()
    one = recorder.series()
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
