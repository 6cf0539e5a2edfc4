"""An arm that goes wrong after its evidence, or only where it is timed, is different."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from measured import prepared
from planned_sweeps import manifest, pack, record

from perfsweep.pipelines.analysis import collect, compare
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.config.types import (
    ClusterConfig,
    DesignConfig,
    MeasureConfig,
    SweepCommand,
    SweepConfig,
)
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.pipelines.parity.timed import Allowed, Asked, TimedNumbers, TimedParity
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import Kind, Outcome, TrialRecord
from perfsweep.workloads.api import Check, Comparator, Parity

ARMS = {"honest": ["yes"], "stale": ["yes"], "timed_half": ["stack", "prepared"]}


def compared(runs: Path) -> Comparison:
    """Measure the cheats, in one pack and by one server, and compare them."""
    small = {"rounds": 2, "servers": 1, "iterations": 30, "warmup_max": 12, "seeds": 3, "repeats": 0}
    command = SweepCommand(
        workload={"name": "toys.cheats:Cheats"},
        measure=MeasureConfig(**small, evidence_iterations=24, counting_iterations=2),
        cluster=ClusterConfig(executor="inprocess"),
        sweep=SweepConfig(name="cheats", designs=[DesignConfig("one_at_a_time", levels=ARMS)]),
        runs=str(runs),
    )
    folder, planned = prepared(command)
    PackRun(folder, planned, planned.packs[0]).run()
    return compare.compare(folder, planned, collect.collect(folder, planned))


@pytest.mark.slow
def test_an_arm_that_goes_stale_or_works_less_where_it_is_timed_is_different_and_an_honest_one_is_not(
    tmp_path: Path,
) -> None:
    found = {one.arm_label: one.parity for one in compared(tmp_path).effects if one.parity}
    for arm, reason in (
        ("stale=yes", "norm is 0 after "),
        ("timed_half=stack", "timed norm is "),
        ("timed_half=prepared", "timed norm is "),
    ):
        assert found[arm].verdict is ParityVerdict.DIFFERENT
        assert found[arm].reason.startswith(reason)
    assert found["honest=yes"].verdict is ParityVerdict.IDENTICAL


@dataclass
class Trials:
    """Timing and course trials of arms, by hand."""

    timed: dict[str, list[TrialRecord]] = field(default_factory=dict)
    courses: dict[tuple[str, int], list[TrialRecord]] = field(default_factory=dict)
    other: dict[tuple[str, Kind], Any] = field(default_factory=dict)

    def numbers(self) -> TimedNumbers:
        return TimedNumbers(manifest(sweep={"references": {"naive": "base"}}), self)


def timed(at: int | None = 40, **numbers: float) -> TrialRecord:
    return record("", Kind.TIMING, reached=at, numbers=numbers)


def course(at: int = 40, **numbers: float) -> TrialRecord:
    return record("", Kind.COURSE, course={at: numbers})


def judged(norms: list[float], own: float, parity: Parity = Parity.EXACT, **seeds: float) -> TimedParity:
    """An arm whose timing trials and course have these norms, beside a reference whose norm is 100."""
    courses = {("arm", 0): [course(norm=own)], ("base", 0): [course(norm=100.0)]}
    courses |= {("base", int(seed[1:])): [course(norm=norm)] for seed, norm in seeds.items()}
    trials = Trials({"arm": [timed(norm=norm) for norm in norms], "base": [timed(norm=100.0)]}, courses)
    return trials.numbers().judge("arm", "base", Allowed(parity, {}, ()))


EXACT = Allowed(Parity.EXACT, {}, ())


def beside_reference(ours: TrialRecord, theirs: TrialRecord, allowed: Allowed = EXACT, **own: Any) -> str:
    """In which number an arm departs from the reference by their courses alone; empty where in none."""
    trials = Trials(courses={("arm", 0): [ours], ("base", 0): [theirs]})
    found = trials.numbers().judge("arm", "base", allowed, **own).departure
    return found.check if found else ""


@pytest.mark.parametrize("allowed", [EXACT, Allowed(Parity.STOCHASTIC, {}, ())])
@pytest.mark.parametrize("excused", [True, False])
def test_less_work_than_the_reference_is_a_departure_whatever_else_is_allowed(
    allowed: Allowed, excused: bool
) -> None:
    assert beside_reference(course(units=9.0), course(units=10.0), allowed, excused=excused) == "units"
    assert beside_reference(course(units=11.0), course(units=10.0), allowed, excused=excused) == ""
    drawn = course(loss=0.5, units=9.0), course(loss=0.5, units=10.0)
    assert beside_reference(*drawn, allowed, excused=excused) == "units", "next to what is not compared"


@pytest.mark.parametrize(("off", "departs"), [(1e-10, "norm"), (1e-12, "")])
def test_a_number_near_zero_is_held_against_a_thousandth_of_its_largest(off: float, departs: str) -> None:
    ours, theirs = (
        record("", Kind.COURSE, course={1: {"norm": 1e-3}, 2: {"norm": norm}}) for norm in (1e-9 + off, 1e-9)
    )
    assert beside_reference(ours, theirs) == departs


@pytest.mark.parametrize(("comparator", "departs"), [("absolute", ""), ("relative", "norm")])
def test_a_bound_on_a_number_is_of_its_size_unless_the_check_says_absolute(
    comparator: str, departs: str
) -> None:
    check = Check("nor*", Comparator(comparator), bound=0.5)
    allowed = Allowed(Parity.EXACT, {}, (check,))
    assert beside_reference(course(norm=0.2), course(norm=0.1), allowed) == departs


def test_trials_that_all_depart_from_their_course_ask_for_a_copy_of_it_and_then_convict() -> None:
    by_arm = {"arm": [timed(norm=150.0), timed(norm=150.0)]}
    first, other, lost = course(norm=100.0), course(norm=90.0), record("", Kind.COURSE, outcome=Outcome.OOM)
    found = {
        name: Trials(by_arm, {("arm", 0): copies}).numbers().judge("arm", "base", EXACT)
        for name, copies in {
            "one": [first],
            "lost": [first, lost],
            "alike": [first, first],
            "unlike": [other, first],
        }.items()
    }
    for name in ("one", "lost"):
        assert found[name].departure and found[name].doubts == (Asked("arm", 0, (40,), copy=1),), name
    assert found["alike"].departure and found["alike"].doubts == ()
    assert found["unlike"].departure is None and "depends on the hash seed" in found["unlike"].note


def test_a_job_is_held_against_the_numbers_of_its_evidence_at_its_end() -> None:
    evidence = record("", Kind.EVIDENCE, reached=0, numbers={"norm": 100.0})
    other = {("arm", Kind.EVIDENCE): StoredTrial(Path(), evidence)}
    numbers = Trials({"arm": [timed(0, norm=150.0)]}, other=other).numbers()
    assert numbers.course("arm") == {0: {"norm": 100.0}} and numbers.course("arm", seed=1) == {}
    found = numbers.judge("arm", "arm", EXACT)
    assert found.departure is not None and found.doubts == ()
    assert found.departure.where == "timed norm is 150 at the end of the job, and untimed 100"


def test_a_course_is_asked_for_where_timing_trials_ended_and_of_a_reference_where_any_did() -> None:
    by_arm = {"base": [timed(10), timed(30)], "arm": [timed(20), timed(20), timed(None)]}
    asked = Trials(by_arm).numbers().missing(pack("base", "arm"))
    assert {one.arm: one.at for one in asked} == {"base": (10, 20, 30), "arm": (20,)}


def test_a_course_that_is_there_or_failed_is_asked_for_no_more_unless_failures_are_retried() -> None:
    lost = record("", Kind.COURSE, outcome=Outcome.OOM)
    courses = {("base", 0): [course(20, norm=1.0)], ("arm", 0): [lost]}
    numbers = Trials({"base": [timed(20)], "arm": [timed(20)]}, courses).numbers()
    assert numbers.missing(pack("base", "arm")) == []
    assert numbers.missing(pack("base", "arm"), retry=(Outcome.OOM,)) == [Asked("arm", 0, (20,))]


def test_other_draws_are_judged_by_paired_seeds_and_not_by_numbers() -> None:
    assert judged([150.0], 150.0).departure
    assert judged([150.0], 150.0, Parity.STOCHASTIC) == TimedParity()


def test_a_number_that_is_none_any_more_is_a_departure_whatever_seeds_do() -> None:
    assert judged([math.nan], math.nan, s1=0.0, s2=900.0).departure


def test_a_departure_asks_for_seeds_and_counts_beyond_three_times_their_range() -> None:
    assert [asked.seed for asked in judged([110.0], 110.0).doubts] == [1, 2]
    assert judged([110.0], 110.0, s1=98.0, s2=103.0).departure is None
    assert judged([120.0], 120.0, s1=98.0, s2=103.0).departure


@pytest.mark.parametrize("norms", [[100.0, 150.0], [130.0, 150.0]])
def test_rounds_that_differ_among_themselves_are_a_note_about_the_process(norms: list[float]) -> None:
    found = judged(norms, 100.0)
    assert found.departure is None
    assert found.note.startswith("depends on the hash seed or the process: timed norm is 150")
