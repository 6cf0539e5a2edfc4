"""The recorder and its series against a simulated machine that knows what everything really took."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from clocks import FakeClock
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsweep.pipelines.trial.timing.clock import HostClock
from perfsweep.pipelines.trial.timing.recorder import NO_TIME, Recorder, Series


@dataclass(frozen=True)
class Part:
    """A phase: work on host and device, then its own phases, then the same work again."""

    name: str
    host_ns: int
    device_ns: int
    parts: tuple[Part, ...] = ()


Iteration = tuple[Part, ...]


def parts(depth: int) -> st.SearchStrategy[Part]:
    inner = st.lists(parts(depth - 1), max_size=2).map(tuple) if depth else st.just(())
    return st.builds(Part, st.sampled_from("abc"), st.integers(0, 50), st.integers(0, 80), inner)


PROGRAMS = st.lists(st.lists(parts(2), max_size=3).map(tuple), min_size=1, max_size=8)


def perform(part: Part, clock: FakeClock, recorder: Recorder) -> None:
    with recorder.phase(part.name):
        clock.advance(part.host_ns)
        clock.launch(part.device_ns)
        for inner in part.parts:
            perform(inner, clock, recorder)
        clock.advance(part.host_ns)


def record(program: list[Iteration], clock: FakeClock, recorder: Recorder) -> Series:
    recorder.start()
    for iteration in program:
        for part in iteration:
            perform(part, clock, recorder)
        recorder.lap()
    recorder.stop()
    return recorder.series()


@dataclass
class Truth:
    """What a program takes on a machine whose device starts idle, worked out without recorder or clock."""

    host_ns: int = 0
    device_free_ns: int = 0
    host: list[dict[str, int]] = field(default_factory=list)
    device: list[dict[str, int]] = field(default_factory=list)
    wall: list[int] = field(default_factory=list)

    @property
    def device_now(self) -> int:
        return max(self.host_ns, self.device_free_ns)

    def run(self, program: list[Iteration]) -> Truth:
        for iteration in program:
            start = self.host_ns
            self.host.append({})
            self.device.append({})
            for part in iteration:
                self._run(part, "")
            self.wall.append(self.host_ns - start)
        self.wall[-1] += self.device_now - self.host_ns
        return self

    def _run(self, part: Part, path: str) -> None:
        path += part.name
        host, device = self.host_ns, self.device_now
        self.host_ns += part.host_ns
        self.device_free_ns = self.device_now + part.device_ns
        for inner in part.parts:
            self._run(inner, f"{path}/")
        self.host_ns += part.host_ns
        self.host[-1][path] = self.host[-1].get(path, 0) + self.host_ns - host
        self.device[-1][path] = self.device[-1].get(path, 0) + self.device_now - device


def by_iteration(phases: dict[str, np.ndarray], count: int) -> list[dict[str, int]]:
    """Phases of each iteration that took any time."""
    return [{name: int(times[i]) for name, times in phases.items() if times[i]} for i in range(count)]


def check_recording(program: list[Iteration], clock: FakeClock, capacity: int) -> None:
    """Hold a recording against the truth, on whatever device the clock has."""
    pool = len(clock._pool)
    series = record(program, clock, Recorder(clock, capacity))
    truth = Truth().run(program)
    positive = [{name: time for name, time in phases.items() if time} for phases in truth.host]
    assert by_iteration(series.host_phases, len(program)) == positive
    assert clock.synchronisations == 2, "the recorder waited for the device inside the region"
    assert series.region_ns == series.region_cpu_ns == series.wall_ns.sum()  # this host works all the time
    # The last synchronisation also awaits late reports: only walls before it are the program's alone.
    assert series.wall_ns[:-1].tolist() == truth.wall[:-1]
    assert len(clock._pool) == pool, "events were lost"
    assert series.device_ns is not None
    missing = series.device_ns == NO_TIME
    assert series.dropped == missing.sum()
    for i in np.flatnonzero(~missing):
        found = {name: int(times[i]) for name, times in series.device_phases.items() if times[i]}
        assert found == {name: time for name, time in truth.device[i].items() if time}
    for times in series.device_phases.values():
        assert (times[missing] == NO_TIME).all()


LAGS = st.sampled_from([0, 7, 400, math.inf])


@settings(max_examples=60, deadline=None)
@given(PROGRAMS, st.sampled_from([0, 1, 3, 10, 1000]), LAGS, st.integers(1, 40))
def test_whatever_the_device_does_no_host_mark_is_lost_and_nothing_waits(
    program, events, lag_ns, capacity
) -> None:
    check_recording(program, FakeClock(events=events, lag_ns=lag_ns), capacity)


def test_a_dry_pool_drops_the_iterations_it_concerns_and_recovers() -> None:
    # Iterations mark three events on a device 1000 ns behind; eight last for two iterations and a boundary.
    burst: list[Iteration] = [(Part("a", 10, 1000),)] * 5
    calm: list[Iteration] = [(Part("a", 3000, 0),)] * 4
    clock = FakeClock(events=8)
    series = record(burst + calm, clock, Recorder(clock))
    assert series.device_ns is not None
    missing = series.device_ns == NO_TIME
    assert missing[2:5].all()
    assert not missing[:2].any()
    assert not missing[6:].any()
    assert series.dropped == missing.sum()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def run_iterations(recorder: Recorder, clock: FakeClock, count: int, each_ns: int = 10) -> None:
    for _ in range(count):
        clock.advance(each_ns)
        recorder.lap()


def test_starting_again_forgets_the_region_before(clock: FakeClock) -> None:
    recorder = Recorder(clock, capacity=2)
    for count in (5, 2):
        recorder.start()
        run_iterations(recorder, clock, count)
        recorder.stop()
    series = recorder.series()
    assert len(series.wall_ns) == 2
    assert series.region_ns == 20


def test_a_region_that_failed_midway_leaves_the_pool_whole_for_the_next() -> None:
    clock = FakeClock(events=16, lag_ns=math.inf)
    recorder = Recorder(clock)
    recorder.start()
    with recorder.phase("a"):
        recorder.lap()
    clock.lag_ns = 0
    series = record([(Part("a", 1, 1),)] * 2, clock, recorder)
    assert series.dropped == 0
    assert len(clock._pool) == 16


def test_phases_outside_a_region_take_no_events() -> None:
    clock = FakeClock(events=8)
    recorder = Recorder(clock)
    for _ in range(20):
        perform(Part("a", 1, 1), clock, recorder)
    series = record([(Part("a", 1, 1),)], clock, recorder)
    assert series.dropped == 0
    perform(Part("a", 1, 1), clock, recorder)
    assert len(clock._pool) == 8


def test_a_series_of_an_unfinished_region_is_refused(clock: FakeClock) -> None:
    recorder = Recorder(clock)
    recorder.start()
    recorder.lap()
    with pytest.raises(RuntimeError, match="no finished region"):
        recorder.series()


def test_marking_does_not_wake_the_garbage_collector() -> None:
    recorder = Recorder(HostClock())
    recorder.start()
    phase: Callable[[str], object] = recorder.phase
    phase("a")
    gc.collect()
    before = gc.get_count()[0]
    for _ in range(100):
        with recorder.phase("a"):
            pass
        recorder.lap()
    # Objects that the collector follows would have added 100 or more; a few belong to the test itself.
    assert gc.get_count()[0] - before < 20


def test_a_phase_that_outlasts_iterations_is_billed_to_each_even_across_packing(clock: FakeClock) -> None:
    recorder = Recorder(clock, capacity=1)
    recorder.start()
    clock.advance(2)
    with recorder.phase("epoch"):
        run_iterations(recorder, clock, 2, each_ns=10)
        clock.advance(3)
    clock.advance(5)
    recorder.lap()
    recorder.stop()
    assert recorder.series().host_phases["epoch"].tolist() == [10, 10, 3]


def test_a_phase_is_closed_by_an_exception(clock: FakeClock) -> None:
    recorder = Recorder(clock)
    recorder.start()
    with pytest.raises(ZeroDivisionError), recorder.phase("a"):
        clock.advance(3)
        raise ZeroDivisionError
    clock.advance(5)
    recorder.lap()
    recorder.stop()
    assert recorder.series().host_phases["a"].tolist() == [3]
