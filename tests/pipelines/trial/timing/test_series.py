"""What a region's series says: times of iterations and phases, flags, CPU time."""

from __future__ import annotations

import numpy as np
import pytest
from clocks import FakeClock

from perfsweep.pipelines.trial.timing.recorder import Flag, Recorder


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def run_iterations(recorder: Recorder, clock: FakeClock, count: int, each_ns: int = 10) -> None:
    for _ in range(count):
        clock.advance(each_ns)
        recorder.lap()


def test_walls_run_from_start_to_start_and_the_last_to_the_end_of_the_region(clock: FakeClock) -> None:
    recorder = Recorder(clock)
    clock.advance(100)
    recorder.start()
    run_iterations(recorder, clock, 3)
    clock.advance(4)
    recorder.stop()
    series = recorder.series()
    assert series.start_ns.tolist() == [100, 110, 120]
    assert series.wall_ns.tolist() == [10, 10, 14]
    assert series.region_ns == 34
    assert series.iterations == 3


def test_cpu_time_of_the_region_is_that_of_the_process() -> None:
    clock = FakeClock(cpu_share=0.5)
    recorder = Recorder(clock)
    recorder.start()
    run_iterations(recorder, clock, 2, each_ns=100)
    recorder.stop()
    assert recorder.series().region_cpu_ns == 100
    assert recorder.series().cpu_ns is None


def test_cpu_time_of_each_iteration_is_recorded_on_request() -> None:
    clock = FakeClock(cpu_share=0.5)
    recorder = Recorder(clock, thread_cpu=True)
    recorder.start()
    for each_ns in (100, 200, 300):
        run_iterations(recorder, clock, 1, each_ns)
    clock.advance(40)
    recorder.stop()
    cpu = recorder.series().cpu_ns
    assert cpu is not None
    assert cpu.tolist() == [50, 100, 170]


def test_flags_belong_to_the_iteration_under_way(clock: FakeClock) -> None:
    recorder = Recorder(clock)
    recorder.start()
    recorder.flag(Flag.FLUSH)
    run_iterations(recorder, clock, 1)
    recorder.flag(Flag.GC)
    recorder.flag(Flag.LIMIT)
    run_iterations(recorder, clock, 1)
    recorder.lap(Flag.COMPILE)
    recorder.flag(Flag.GRAPH_SKIP)
    recorder.stop()
    flags = recorder.series().flags
    assert flags.dtype == np.uint32
    assert flags.tolist() == [Flag.FLUSH, Flag.GC | Flag.LIMIT, Flag.COMPILE | Flag.GRAPH_SKIP]


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


def test_a_phase_inside_another_is_named_after_both_and_is_part_of_the_outer_one(clock: FakeClock) -> None:
    recorder = Recorder(clock)
    recorder.start()
    with recorder.phase("forward"):
        clock.advance(3)
        with recorder.phase("attention"):
            clock.advance(4)
    with recorder.phase("attention"):
        clock.advance(5)
    recorder.lap()
    recorder.stop()
    phases = {name: times.tolist() for name, times in recorder.series().host_phases.items()}
    assert phases == {"forward": [7], "forward/attention": [4], "attention": [5]}


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
