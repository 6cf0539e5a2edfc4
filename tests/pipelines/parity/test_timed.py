"""An arm that goes wrong after its evidence, or only where it is timed, is different."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipelines.analysis import collect, compare
from pipelines.analysis.compare import Comparison
from pipelines.config.types import ClusterConfig, DesignConfig, MeasureConfig, SweepCommand, SweepConfig
from pipelines.execution import launch
from pipelines.execution.pack import PackRun
from pipelines.parity.comparison import ParityVerdict
from pipelines.parity.timed import Allowed, TimedNumbers, TimedParity
from pipelines.plan import plan
from pipelines.store.progress import read_progress
from pipelines.store.records import Kind, Manifest, Outcome, Sweep, SweepFolder, TrialRecord
from workloads.api import Device, Parity

pytestmark = pytest.mark.slow

ARMS = {"honest": ["yes"], "stale": ["yes"], "timed_half": ["stack", "prepared"]}


Swept = tuple[PackRun, Comparison]


def sweep(runs: Path, levels: dict[str, list[Any]], **measure: Any) -> Swept:
    """Measure arms of the cheats, in one pack and by one server, and compare them."""
    small = {"rounds": 2, "servers": 1, "iterations": 30, "warmup_max": 12, "seeds": 3}
    command = SweepCommand(
        workload={"name": "toys.cheats:Cheats"},
        measure=MeasureConfig(**small, evidence_iterations=24, counting_iterations=2, repeats=0, **measure),
        cluster=ClusterConfig(executor="inprocess"),
        sweep=SweepConfig(name="cheats", designs=[DesignConfig("one_at_a_time", levels=levels)]),
        runs=str(runs),
    )
    manifest = plan.make_plan(command, Device())
    folder = SweepFolder(runs / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    run = PackRun(folder, manifest, manifest.packs[0])
    run.run()
    return run, compare.compare(folder, manifest, collect.collect(folder, manifest))


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Swept:
    return sweep(tmp_path_factory.mktemp("runs"), ARMS)


def parity(swept: Swept, arm: str) -> tuple[ParityVerdict, str]:
    result = next(one for one in swept[1].effects if one.arm_label == arm)
    assert result.parity is not None
    return result.parity.verdict, result.parity.reason


def test_an_arm_that_goes_stale_after_its_evidence_is_different(swept) -> None:
    verdict, reason = parity(swept, "stale=yes")
    assert verdict is ParityVerdict.DIFFERENT
    assert reason.startswith("norm is 0 after ")


@pytest.mark.parametrize("channel", ["stack", "prepared"])
def test_an_arm_that_works_less_where_it_is_timed_is_different(swept, channel: str) -> None:
    verdict, reason = parity(swept, f"timed_half={channel}")
    assert verdict is ParityVerdict.DIFFERENT
    assert reason.startswith("timed norm is ")


def test_an_honest_arm_stays_identical(swept) -> None:
    assert parity(swept, "honest=yes")[0] is ParityVerdict.IDENTICAL


@dataclass
class Trials:
    """Timing and course trials of an arm and its reference, by hand: a norm after 40 iterations."""

    timed: dict[str, list[TrialRecord]]
    courses: dict[tuple[str, int], list[TrialRecord]]
    other: dict[tuple[str, Kind], Any] = field(default_factory=dict)


def record(kind: Kind, norm: float) -> TrialRecord:
    numbers = {"norm": norm}
    own: dict[str, Any] = {"numbers": numbers} if kind is Kind.TIMING else {"course": {40: numbers}}
    return TrialRecord(
        arm="", kind=kind, pack="p000", round=0, attempt=0, outcome=Outcome.OK, reached=40, **own
    )


def judged(timed: list[float], course: float, parity: Parity = Parity.EXACT, **seeds: float) -> TimedParity:
    """An arm whose timing trials and course have these norms, beside a reference whose norm is 100."""
    courses = {("arm", 0): [record(Kind.COURSE, course)], ("base", 0): [record(Kind.COURSE, 100.0)]}
    courses |= {("base", int(seed[1:])): [record(Kind.COURSE, norm)] for seed, norm in seeds.items()}
    trials = Trials(
        {"arm": [record(Kind.TIMING, norm) for norm in timed], "base": [record(Kind.TIMING, 100.0)]}, courses
    )
    manifest = Manifest(
        sweep=Sweep(
            name="s", workload="w", config={}, measure=MeasureConfig(), code="", references={"naive": "base"}
        ),
        arms=(),
        effects=(),
        packs=(),
    )
    return TimedNumbers(manifest, trials).judge("arm", "base", Allowed(parity, {}, ()))


def test_other_draws_are_judged_by_paired_seeds_and_not_by_numbers() -> None:
    assert judged([150.0], 150.0).departure
    assert judged([150.0], 150.0, Parity.STOCHASTIC) == TimedParity()


def test_a_number_that_is_none_any_more_is_a_departure_whatever_seeds_do() -> None:
    assert judged([math.nan], math.nan, s1=0.0, s2=900.0).departure


def test_a_looser_class_allows_more() -> None:
    assert judged([100.5], 100.5).departure
    assert judged([100.5], 100.5, Parity.TOLERANCE) == TimedParity()


def test_a_departure_asks_for_seeds_and_counts_beyond_three_times_their_range() -> None:
    assert [asked.seed for asked in judged([110.0], 110.0).doubts] == [1, 2]
    assert judged([110.0], 110.0, s1=98.0, s2=103.0).departure is None
    assert judged([120.0], 120.0, s1=98.0, s2=103.0).departure


@pytest.mark.parametrize("timed", [[100.0, 150.0], [130.0, 150.0]])
def test_rounds_that_differ_among_themselves_are_a_note_about_the_process(timed: list[float]) -> None:
    found = judged(timed, 100.0)
    assert found.departure is None
    assert found.note.startswith("depends on the hash seed or the process: timed norm is 150")


def test_each_arm_costs_one_more_trial_and_one_in_doubt_another(swept) -> None:
    run, _ = swept
    progress = read_progress(run.folder, run.manifest)
    courses = Counter(
        (run.manifest.arm(one.record.arm).label, one.record.replicate)
        for one in progress.every
        if one.record.kind is Kind.COURSE
    )
    assert courses["honest=yes", 0] == courses["stale=yes", 0] == 1
    assert courses["timed_half=stack", 0] == 2, "it may have been the process"
    assert [courses["baseline", seed] for seed in range(3)] == [1, 1, 1], "the spread over seeds was needed"


def test_a_sweep_that_is_finished_runs_none_of_them_again(swept) -> None:
    run, _ = swept
    before = len(read_progress(run.folder, run.manifest).every)
    PackRun(run.folder, run.manifest, run.manifest.packs[0]).run()
    assert len(read_progress(run.folder, run.manifest).every) == before


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_arms_that_cheat_are_different_in_sweeps_of_other_seeds(tmp_path: Path, seed: int) -> None:
    swept = sweep(tmp_path, ARMS, seed=seed)
    arms = ("stale=yes", "timed_half=stack", "timed_half=prepared")
    assert {parity(swept, arm)[0] for arm in arms} == {ParityVerdict.DIFFERENT}
    assert parity(swept, "honest=yes")[0] is ParityVerdict.IDENTICAL
