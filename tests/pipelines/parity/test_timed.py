"""An arm that goes wrong after its evidence, or only where it is timed, is different."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pipelines.analysis import collect, compare
from pipelines.analysis.compare import Comparison
from pipelines.config.types import ClusterConfig, DesignConfig, MeasureConfig, SweepCommand, SweepConfig
from pipelines.execution import launch
from pipelines.execution.pack import PackRun
from pipelines.parity.comparison import ParityVerdict
from pipelines.plan import plan
from pipelines.store.progress import read_progress
from pipelines.store.records import Kind, SweepFolder
from workloads.api import Device

ARMS = {
    "honest": "yes",
    "stale": "yes",
    "timed_half": ["stack", "prepared"],
    "hashed": "yes",
    "rounded": "yes",
    "drawn": "yes",
    "exploding": "yes",
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> tuple[PackRun, Comparison]:
    levels = {name: level if isinstance(level, list) else [level] for name, level in ARMS.items()}
    command = SweepCommand(
        workload={"name": "toys.cheats:Cheats"},
        measure=MeasureConfig(
            rounds=2,
            iterations=30,
            warmup_max=12,
            evidence_iterations=24,
            counting_iterations=2,
            repeats=0,
            seeds=3,
        ),
        cluster=ClusterConfig(executor="inprocess"),
        sweep=SweepConfig(name="cheats", designs=[DesignConfig("one_at_a_time", levels=levels)]),
        runs=str(tmp_path_factory.mktemp("runs")),
    )
    manifest = plan.make_plan(command, Device())
    folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    run = PackRun(folder, manifest, manifest.packs[0])
    run.run()
    return run, compare.compare(folder, manifest, collect.collect(folder, manifest))


def parity(swept: tuple[PackRun, Comparison], arm: str) -> tuple[ParityVerdict, str]:
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


def test_a_number_that_becomes_nan_after_the_evidence_is_different(swept) -> None:
    assert parity(swept, "exploding=yes")[0] is ParityVerdict.DIFFERENT


def test_an_honest_arm_stays_identical_and_a_rounded_one_within_its_class(swept) -> None:
    assert parity(swept, "honest=yes")[0] is ParityVerdict.IDENTICAL
    assert parity(swept, "rounded=yes")[0] is ParityVerdict.WITHIN_TOLERANCE


def test_other_draws_are_judged_by_paired_seeds_and_not_by_numbers(swept) -> None:
    assert "norm" not in parity(swept, "drawn=yes")[1]


def test_each_arm_costs_one_more_trial_and_one_in_doubt_another(swept) -> None:
    run, _ = swept
    progress = read_progress(run.folder, run.manifest)
    courses = Counter(
        (run.manifest.arm(one.record.arm).label, one.record.replicate)
        for one in progress.every
        if one.record.kind is Kind.COURSE
    )
    once = [("honest=yes", 0), ("rounded=yes", 0), ("drawn=yes", 0), ("stale=yes", 0), ("exploding=yes", 0)]
    assert [courses[arm] for arm in once] == [1] * len(once)
    assert courses["timed_half=stack", 0] == 2, "it may have been the process"
    assert [courses["baseline", seed] for seed in range(3)] == [1, 1, 1], "the spread over seeds was needed"


def test_a_sweep_that_is_finished_runs_none_of_them_again(swept) -> None:
    run, _ = swept
    before = len(read_progress(run.folder, run.manifest).every)
    PackRun(run.folder, run.manifest, run.manifest.packs[0]).run()
    assert len(read_progress(run.folder, run.manifest).every) == before
