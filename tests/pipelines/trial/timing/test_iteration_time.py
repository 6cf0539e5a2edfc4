"""How long an iteration of evidence takes while nothing keeps it from a core."""

from __future__ import annotations

import pytest
from clocks import FakeClock

from perfsweep.pipelines.trial import process_group
from perfsweep.pipelines.trial.machine.usage import Moment, moment
from perfsweep.pipelines.trial.timing.clock import HostClock
from perfsweep.pipelines.trial.timing.iterations import Duration, beat_of, over_a_cadence


class Crowded(FakeClock):
    """A clock of one thread that waits for its core for `delay_ns` of what passes."""

    delay_ns = 0
    counts = moment().counts

    def usage(self) -> Moment:  # type: ignore[override]
        return Moment({1: (self.time_ns, self.delay_ns)}, self.counts)

    def taken_bytes(self) -> int:
        return self.memory_bytes

    def pass_time(self, wall_ns: int, delay_ns: int = 0) -> None:
        self.advance(wall_ns)
        self.delay_ns += delay_ns


@pytest.mark.parametrize("delay_ns", [0, 9_000_000], ids=["alone", "others have the core nine times as long"])
def test_time_for_which_others_have_the_core_is_no_part_of_an_iteration(delay_ns: int) -> None:
    clock = Crowded(cpu_share=0.0)
    duration = Duration(clock, skipped=1)
    for own_ns in (50_000_000, 1_000_000, 3_000_000):  # the first one warms up
        with duration:
            clock.pass_time(own_ns + delay_ns, delay_ns)
    assert duration.mean_ns == 2_000_000


def test_nothing_is_known_of_iterations_that_all_warm_up() -> None:
    duration = Duration(HostClock(), skipped=1)
    with duration:
        pass
    assert duration.mean_ns is None


class Saving:
    """Steps of a millisecond, and of nine where it saves: the last of four."""

    cadence = 4

    def __init__(self, clock: Crowded) -> None:
        self.clock, self.steps = clock, 0

    def step(self, clock: object) -> None:
        self.steps += 1
        self.clock.pass_time(1_000_000 if self.steps % 4 else 9_000_000)


@pytest.mark.parametrize("done", [0, 3])
def test_what_comes_once_a_cadence_has_its_share_wherever_that_begins(done: int) -> None:
    clock = Crowded(cpu_share=0.0)
    workload = Saving(clock)
    workload.steps = done
    assert over_a_cadence(workload, clock, most_s=1.0) == 3_000_000  # type: ignore[arg-type]
    assert workload.steps == done + 4


def test_a_cadence_that_lasts_longer_than_a_region_is_not_waited_for() -> None:
    clock = Crowded(cpu_share=0.0)
    workload = Saving(clock)
    assert over_a_cadence(workload, clock, most_s=0.0015) is None  # type: ignore[arg-type]
    assert workload.steps == 2


class Ending(Saving):
    """The same, of so many steps."""

    last = 30

    def step(self, clock: object) -> None:
        if self.steps == self.last:
            raise RuntimeError("no more")
        super().step(clock)


@pytest.mark.parametrize("kind", [Saving, Ending])
def test_the_period_of_a_loop_is_seen_with_the_mean_over_whole_ones(kind: type[Saving]) -> None:
    clock = Crowded(cpu_share=0.0)
    found = beat_of(kind(clock), clock)  # type: ignore[arg-type]
    assert (found["cadence"], found["iteration_ns"]) == (4, 3_000_000)


def test_a_loop_of_one_beat_has_no_period() -> None:
    clock = Crowded(cpu_share=0.0)
    steady = Saving(clock)
    steady.step = lambda clock: steady.clock.pass_time(1_000_000)  # type: ignore[method-assign]
    found = beat_of(steady, clock)  # type: ignore[arg-type]
    assert found["cadence"] is None and "iteration_ns" not in found
    assert found["quantities"] == {"time_growth": 0.0, "memory_growth": 0.0}


def test_ranks_look_for_as_long_as_the_first_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    decided = iter([False] * 16 + [True])
    monkeypatch.setattr(process_group, "agree", lambda over, world: next(decided))
    monkeypatch.setattr(process_group, "any_of", lambda over, world: over)
    clock = Crowded(cpu_share=0.0)
    workload = Saving(clock)
    assert beat_of(workload, clock, 2)["cadence"] == 4  # type: ignore[arg-type]
    assert workload.steps == 16


def test_a_loop_that_ends_on_another_rank_is_waited_for_by_none(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = iter([False] * 12 + [True])
    monkeypatch.setattr(process_group, "agree", lambda over, world: over)
    monkeypatch.setattr(process_group, "any_of", lambda over, world: next(ended))
    clock = Crowded(cpu_share=0.0)
    workload = Saving(clock)
    assert beat_of(workload, clock, 2)["cadence"] == 4  # type: ignore[arg-type]
    assert workload.steps == 13
