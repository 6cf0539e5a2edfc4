"""What cannot be timed is refused in a sentence: never a silent number."""

from __future__ import annotations

import dataclasses
import gc
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from clocks import FakeClock
from toys.odd import Endless, EndsInWarmUp, NoJob

from pipelines.store.options import MeasureConfig
from pipelines.store.records import Arm, Kind, TrialSpec
from pipelines.trial.step_logging import BufferedLog
from pipelines.trial.timing import ranks, regions
from workloads.api import Context, Device, Workload
from workloads.errors import ContractError, RecordError

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
        arm = Arm(id="a" * 16, label="arm", levels=chosen)
        spec = TrialSpec(
            sweep="s",
            workload="w",
            config={},
            arm=arm,
            kind=Kind.TIMING,
            pack="p000",
            round=0,
            attempt=0,
            measure=MEASURE,
            code="",
            cache_dir=str(tmp_path),
            world=world,
        )
        workload = cls()
        workload.setup(cls.Config(), chosen, Context(Device(), tmp_path, tmp_path))
        monkeypatch.setattr(regions, "clock_for", lambda device: clock)
        return regions.timing_trial(workload, spec, tmp_path, Device(), BufferedLog())

    return run


def test_a_clock_that_ticks_gives_the_time_it_ticked(timed: Timed) -> None:
    found = timed(Endless, FakeClock(tick_ns=1000))
    # One look at each end of the region and one after each iteration.
    assert (found["iterations"], found["units"], found["region_ns"]) == (8, 8.0, 9000)


def test_iterations_that_take_no_time_are_refused(timed: Timed) -> None:
    with pytest.raises(ValueError, match="stood still"):
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
        (BufferedLog, "clear", "forget"),
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


def test_what_warm_up_did_stands_in_the_record_beside_the_region(timed: Timed) -> None:
    found = timed(Endless, FakeClock(time_ns=10**12, tick_ns=10**6))
    assert 1 <= found["warmup_iterations"] <= MEASURE.warmup_max
    assert found["first_iteration_s"] == pytest.approx(1e-3)
    assert found["warmup_s"] == pytest.approx(1e-3 * found["warmup_iterations"])
    assert found["reached"] == found["warmup_iterations"] + found["iterations"]


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
