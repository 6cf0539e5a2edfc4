"""What cannot be timed is refused in a sentence: never a silent number."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import resource
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from clocks import FakeClock
from planned_sweeps import spec
from toys.odd import Endless, EndsInWarmUp, NoJob

from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.records import read_iterations
from perfsweep.pipelines.trial import ranks
from perfsweep.pipelines.trial.step_logging import BufferedLog
from perfsweep.pipelines.trial.timing import regions, steady
from perfsweep.pipelines.trial.timing.clock import HostClock
from perfsweep.pipelines.trial.timing.recorder import write_regions
from perfsweep.pipelines.trial.timing.steady import Warm
from perfsweep.pipelines.trial.turns import Cut, Turn, Uncut
from perfsweep.workloads.api import Context, Device, Workload
from perfsweep.workloads.errors import ContractError, RecordError

MEASURE = MeasureConfig(
    rounds=2,
    iterations=8,
    jobs=1,
    warmup_max=8,
    evidence_iterations=1,
    counting_iterations=1,
    threads=1,
    timeout_s=60,
    seed=0,
)

Timed = Callable[..., dict[str, Any]]


class Brief(Endless):
    """Jobs of two iterations."""

    shape = "job"

    def done(self) -> bool:
        return self.steps == 2

    def reset(self) -> None:
        self.steps = 0


class Backwards(FakeClock):
    """A clock that jumps back by a second, once, after some looks at it."""

    def __init__(self, after: int) -> None:
        super().__init__(time_ns=10**12, tick_ns=1000)
        self._left = after

    def now_ns(self) -> int:  # type: ignore[override]
        self._left -= 1
        if self._left == 0:
            self.time_ns -= 10**9
        return super().now_ns()


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timed:
    """Times a workload by a clock of the test's."""

    def run(cls: type[Workload], clock: FakeClock, world: int = 1, **levels: str) -> dict[str, Any]:
        chosen = {"units": "one", **levels}
        planned = spec(measure=MEASURE, round=0, world=world)
        workload = cls()
        workload.setup(cls.Config(), chosen, Context(Device(), tmp_path, tmp_path))
        monkeypatch.setattr(regions, "clock_for", lambda device: clock)
        return regions.timing_trial(workload, planned, tmp_path, Device(), BufferedLog())

    return run


def test_iterations_that_take_no_time_are_refused(timed: Timed) -> None:
    with pytest.raises(ValueError, match="clock that stopped"):
        timed(Endless, FakeClock(tick_ns=0))


@pytest.mark.parametrize("after", [4, 15])  # in the warm-up, and in the region
def test_a_clock_that_jumps_back_is_refused(timed: Timed, after: int) -> None:
    with pytest.raises((ValueError, RecordError), match="ran backwards"):
        timed(Endless, Backwards(after))


def test_steps_that_run_out_are_refused_by_name(timed: Timed) -> None:
    with pytest.raises(ContractError, match="EndsInWarmUp ran out of iterations while it was measured"):
        timed(EndsInWarmUp, FakeClock(tick_ns=1000))


def test_iterations_that_do_no_units_are_refused(timed: Timed) -> None:
    with pytest.raises(RecordError, match=r"did 0 units of work; progress\(\) must grow"):
        timed(Endless, FakeClock(tick_ns=1000), units="none")


def test_a_job_that_is_over_before_it_begins_is_refused(timed: Timed) -> None:
    with pytest.raises(RecordError, match="ended before an iteration could be timed"):
        timed(NoJob, FakeClock(tick_ns=1000))


class Journal(FakeClock):
    """A clock without a device that notes, with others, what is done in which order."""

    def __init__(self) -> None:
        super().__init__(time_ns=10**12, tick_ns=1000)
        self.done: list[str] = []

    def reset_peak(self) -> None:
        self.done.append("peak")

    def synchronize(self) -> None:
        self.done.append("wait")

    def noting(self, what: str, of: Callable[..., Any]) -> Callable[..., Any]:
        """The function, noted."""

        def noted(*args: Any, **kwargs: Any) -> Any:
            self.done.append(what)
            return of(*args, **kwargs)

        return noted

    def told(self) -> str:
        """What was done, repetitions once."""
        return " ".join(what for what, _ in itertools.groupby(self.done))


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    journal = Journal()
    for owner, name, what in (
        (Endless, "step", "step"),
        (Brief, "reset", "reset"),
        (ranks, "barrier", "meet"),
        (gc, "collect", "collect"),
        (gc, "freeze", "freeze"),
        (regions.Meter, "begin", "meter"),
        (regions.Meter, "end", "metered"),
        (BufferedLog, "shorten", "forget"),
    ):
        monkeypatch.setattr(owner, name, journal.noting(what, getattr(owner, name)))
    return journal


SETTLED = "collect freeze peak forget"
"""Between warm-up and the region: garbage is gone, and neither memory nor metrics of the warm-up count."""
REGION = "wait meter meet wait step wait metered"
"""The device has done all it was given, the meter is read, the ranks have met; and then nothing but steps."""


def test_all_is_settled_before_a_region_and_nothing_done_inside_it(timed: Timed, journal: Journal) -> None:
    timed(Endless, journal)
    warm, _, rest = journal.told().partition(" collect ")
    assert set(warm.removeprefix("peak ").split()) == {"step", "wait"}
    assert warm.startswith("peak step wait step") and warm.endswith("wait")
    assert f"collect {rest}" == f"{SETTLED} {REGION}"


def test_jobs_are_regions_of_their_own_and_begin_outside_them(
    timed: Timed, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "MEASURE", dataclasses.replace(MEASURE, jobs=3))
    found = timed(Brief, journal)
    discarded = "peak step wait reset"
    assert journal.told() == f"{discarded} {SETTLED} {REGION} reset {REGION} reset {REGION}"
    # Four looks in each job: at its ends and after each of its two iterations, of which the last is an end.
    assert (found["units"], found["iterations"], found["region_ns"]) == (6.0, 6, 9000)


def test_what_warm_up_did_is_in_the_record_next_to_the_region(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(regions, "write_status", lambda folder, status: said.append(status))
    clock, step = FakeClock(time_ns=10**12, tick_ns=10**6), Endless.step

    def slow_first(self: Endless, marks: Any) -> None:
        clock.advance(5 * 10**6 if self.steps == 0 else 0)
        step(self, marks)

    monkeypatch.setattr(Endless, "step", slow_first)
    found = timed(Endless, clock)
    assert said == ["warming up", "timing", "saving"]
    by_machine = ("usage", "quantities", "withheld", "energy")  # not all tell of their energy
    told: dict = {"units": 8.0, "iterations": 8, "region_ns": 9 * 10**6, "region_cpu_ns": 10 * 10**6}
    told |= {"first_iteration_s": 0.006, "warmup_iterations": 5, "warmup_s": 0.01, "settled": True}
    told |= {"alarm": None, "compile_s": 0.0, "recompiles": 0, "recompile_reason": "", "peak_bytes": 0}
    told |= {"counters": {"cache_hits": 0.0, "cache_misses": 0.0}, "mfu": None, "numbers": {"units": 13.0}}
    told |= {"reached": 13, "ranks": None, "loaded": ()}
    assert {name: value for name, value in found.items() if name not in by_machine} == told


def test_what_a_workload_counts_itself_is_told_for_one_iteration_and_of_jobs_as_it_stands(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Endless, "counters", lambda self: {"draws": 2.5 * self.steps, "shares": 0.5})
    found = timed(Endless, FakeClock(tick_ns=1000))
    own = found["counters"]
    assert (own["draws"], own["shares"] * found["reached"]) == pytest.approx((2.5, 0.5))
    assert timed(Brief, FakeClock(tick_ns=1000))["counters"]["draws"] == 5.0


def test_a_warm_up_sees_a_short_cadence_whole_and_a_region_is_whole_ones(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cadence, warm, region in ((1, (5, 6), 8), (3, (5, 6), 9), (7, (7,), 14)):
        monkeypatch.setattr(Endless, "cadence", cadence)
        found = timed(Endless, FakeClock(tick_ns=1000))
        assert found["warmup_iterations"] in warm and found["iterations"] == region


@pytest.mark.parametrize(("discard_s", "steps"), [(None, 2), (1.0, 2), (1.5e-6, 1)])
def test_a_discarded_job_lasts_no_longer_than_asked(
    timed: Timed, monkeypatch: pytest.MonkeyPatch, discard_s: float | None, steps: int
) -> None:
    monkeypatch.setitem(globals(), "MEASURE", dataclasses.replace(MEASURE, discard_s=discard_s))
    done: list[int] = []
    monkeypatch.setattr(Brief, "reset", lambda self: done.append(self.steps) or setattr(self, "steps", 0))
    assert timed(Brief, FakeClock(tick_ns=1000))["units"] == 2.0
    assert done[0] == steps
    brief = Brief()
    brief.steps = 0
    warm = steady.discard_job(brief, FakeClock(tick_ns=1000), discard_s)
    assert (warm.job_steps, brief.steps) == (steps, 0)


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_alone_writes_the_series_that_its_record_is_made_of(
    timed: Timed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    monkeypatch.setattr(torch.distributed, "broadcast", lambda flag, src: None)  # nobody else is there
    monkeypatch.setattr(ranks, "barrier", lambda world: None)
    monkeypatch.setattr(ranks, "gathered", lambda own, world: [own, own])
    timed(Endless, FakeClock(tick_ns=1000), world=2)
    assert (tmp_path / "iterations.npz").exists() == (rank == 0)


@pytest.mark.parametrize(
    ("alarms", "regions_", "alarm"),
    [([], 1, None), (["it drifts"], 2, None), (["it drifts", "it still drifts"], 2, "it still drifts")],
)
def test_a_region_that_does_not_look_steady_is_measured_once_more(
    timed: Timed, monkeypatch: pytest.MonkeyPatch, alarms: list[str], regions_: int, alarm: str | None
) -> None:
    left = list(alarms)
    monkeypatch.setattr(regions, "region_alarm", lambda *series: left.pop(0) if left else None)
    found = timed(Endless, FakeClock(tick_ns=1000))
    assert (found["alarm"], found["settled"], found["iterations"]) == (alarm, alarm is None, 8)
    assert found["reached"] == found["warmup_iterations"] + 8 * regions_
    assert (found["units"], left) == (8.0, [])


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each further look of a region finds compiled since the one before; nothing where it is empty."""
    left: list[int] = []
    monkeypatch.setattr(regions.CompileCounting, "poll", lambda self: left.pop(0) if left else 0)
    return left


class Given:
    """Turns of so many steps."""

    def __init__(self, steps: int) -> None:
        self.steps, self.taken = steps, 0

    def next(self) -> Turn:
        self.taken += 1
        return Turn(self.steps)


def turned(tmp_path: Path, turns: Cut, looks: list[int], found: list[int]) -> dict[str, Any]:
    """The region of a workload, and what further looks at it `found` compiled since the one before."""
    planned = spec(measure=MEASURE, round=0)
    workload = Endless()
    workload.setup(Endless.Config(), {"units": "one"}, Context(Device(), tmp_path, tmp_path))
    with regions.Timing(workload, planned, Device(), BufferedLog()) as timing:
        timing._clock = FakeClock(tick_ns=1000)
        timing.warm_up(tmp_path)
        timing._steps = 0
        looks[:] = found
        return timing.region(tmp_path, turns)


def test_what_compiled_inside_a_region_is_no_time_of_it(looks: list[int], tmp_path: Path) -> None:
    for found, alarm, reached in (
        ([1, 0], None, 8),
        ([0, 1, 0, 0], None, 16),
        ([0, 1, 0, 1], "compiled inside the timed region", 16),
    ):
        told = turned(tmp_path, Uncut(), looks, found)
        assert (told["alarm"], told["settled"], told["reached"]) == (alarm, alarm is None, reached)


def test_arms_that_take_turns_share_what_troubled_them_but_not_what_compiled(
    looks: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "region_alarm", lambda *series: "it drifts")
    turns = Given(2)
    told = turned(tmp_path, turns, looks, [])
    assert (told["alarm"], told["reached"], turns.taken) == ("it drifts", 8, 4)
    assert (told["iterations"], told["units"], told["region_ns"]) == (8, 8.0, 4 * 3000)
    assert (turned(tmp_path, Given(2), looks, [0, 0, 0, 1])["reached"], looks) == (16, [])


def test_a_phase_that_a_part_of_the_region_never_entered_took_no_time_there(tmp_path: Path) -> None:
    def part(start: int, **phases: int) -> Any:
        phase = {name: np.array([ns, ns]) for name, ns in phases.items()}
        return SimpleNamespace(
            start_ns=np.array([start, start + 5]), wall_ns=np.array([5, 5]), flags=np.zeros(2, np.uint32),
            device_ns=np.array([3, 4]), host_phases=phase, device_phases={}, iterations=2,
        )  # fmt: skip

    log = BufferedLog()
    write_regions(
        tmp_path, [part(10, load=1), part(90, load=2, save=7)], [4], log.arrays(), {"r": np.ones(1)}
    )
    arrays = read_iterations(tmp_path)
    assert {
        name: arrays[name].tolist() for name in ("start_ns", "host_load", "host_save", "device_ns", "r")
    } == {
        "start_ns": [10, 15, 90, 95],
        "host_load": [1, 1, 2, 2],
        "host_save": [0, 0, 7, 7],
        "device_ns": [3, 4, 3, 4],
        "r": [1.0],
    }
    assert arrays["warmup_wall_ns"].tolist() == [4]
    since_s = (time.time_ns() - time.perf_counter_ns() + 10 - int(arrays["epoch_ns"][0])) / 1e9
    assert abs(since_s) < 60, "the wall clock at the first iteration"


def test_where_other_processes_do_the_work_the_clock_is_theirs() -> None:
    used = resource.struct_rusage((1.5, 0.25, *[0] * 14))
    theirs, own = (
        regions.clock_of(SimpleNamespace(child_usage=lambda usage=usage: usage), Device(count=2))  # type: ignore[arg-type]
        for usage in (used, None)
    )
    assert (theirs.cpu_ns(), theirs.used_devices(), type(own)) == (1_750_000_000, [0, 1], HostClock)


@pytest.mark.parametrize(
    ("change", "rests"),
    [
        ({}, True),
        ({"others_rest": False}, False),
        ({"children": "usage"}, False),
        ({"processes": ["worker"]}, False),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_an_arm_rests_where_nothing_of_it_works_on_while_it_waits(
    change: dict[str, Any], rests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = change.get("children")
    workload: Any = SimpleNamespace(shape="steps", cadence=3, child_usage=lambda: None)
    planned: Any = SimpleNamespace(measure=MEASURE, timed_iterations=8)
    timing = regions.Timing(workload, planned, Device(), BufferedLog())
    workload.child_usage = lambda: usage
    timing._others_rest = change.get("others_rest", True)
    monkeypatch.setattr(regions.multiprocessing, "active_children", lambda: change.get("processes", []))
    assert timing.ready().rests is rests


@pytest.mark.parametrize(
    ("shape", "warm", "step_ns", "steps", "spares"),
    [
        ("steps", Warm([90_000, *[1000] * 6], True), 1000, 9, True),
        ("job", Warm([5000], True, (), 5), 1000, 10, False),
        ("job", Warm([5000], True), 5000, 1, False),
    ],
    ids=["whole cadences", "two jobs of five steps", "jobs of no step"],
)
def test_an_arm_tells_how_long_its_steps_are_and_how_many_its_region_has(
    shape: str, warm: Warm, step_ns: int, steps: int, spares: bool
) -> None:
    workload: Any = SimpleNamespace(shape=shape, cadence=3, child_usage=lambda: None)
    planned: Any = SimpleNamespace(measure=dataclasses.replace(MEASURE, jobs=2), timed_iterations=8)
    timing = regions.Timing(workload, planned, Device(), BufferedLog())
    timing._warm = warm
    ready = timing.ready()
    assert (ready.step_ns, ready.steps, ready.spares) == (step_ns, steps, spares)
    assert ready.taken_bytes > 0
