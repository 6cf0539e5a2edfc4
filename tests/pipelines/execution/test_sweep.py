"""A whole sweep of the toy workload: every ending of a trial is an outcome, and the rest is judged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from measured import prepared
from waiting import until

from perfsweep.pipelines.analysis import collect, compare
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.config.types import (
    ClusterConfig,
    DesignConfig,
    MeasureConfig,
    SweepCommand,
    SweepConfig,
)
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.files import read_arrays
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Arm, Kind, Manifest, Outcome, SweepFolder, TrialRecord
from perfsweep.workloads.api import Device

LEVELS = {
    "work": ["single"],
    "idle": ["on"],
    "sign": ["wrong"],
    "half": ["on"],
    "trouble": ["raise", "kill", "segv", "oom", "exit", "late"],
    "device_only": ["on"],
    "after": ["on"],
}


@dataclass(frozen=True)
class Done:
    """A finished sweep with its comparison."""

    folder: SweepFolder
    manifest: Manifest
    trials: pl.DataFrame
    comparison: Comparison

    def effect(self, toggle: str, level: str) -> EffectResult:
        return next(
            r for r in self.comparison.effects if (r.effect.toggle, r.effect.level) == (toggle, level)
        )


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    runs = tmp_path_factory.mktemp("runs")
    command = SweepCommand(
        workload={"name": "toys.spinner:Spinner"},
        measure=MeasureConfig(
            rounds=3,
            servers=1,
            iterations=8,
            warmup_max=10,
            evidence_iterations=4,
            counting_iterations=2,
            timeout_s=60,
            repeats=0,
            timed_parity=False,  # one more trial of each arm
        ),
        cluster=ClusterConfig(arms_per_pack=20),
        sweep=SweepConfig(name="toy", designs=[DesignConfig("one_at_a_time", levels=LEVELS)]),
        runs=str(runs),
    )
    folder, manifest = prepared(command)
    broken = launch.launch(folder, manifest, list(manifest.packs), command.cluster, Device())
    assert not broken
    trials = on_a_simulated_clock(collect.collect(folder, manifest))
    return Done(folder, manifest, trials, compare.compare(folder, manifest, trials))


def on_a_simulated_clock(trials: pl.DataFrame) -> pl.DataFrame:
    """Trials as on a machine of one's own: half the work takes half the time, a few per mille apart."""
    work = pl.when(pl.col("label") == "work=single").then(0.5).otherwise(1.0)
    jitter = 1 + (pl.col("round") * 7 + pl.col("label").str.len_bytes()) % 5 / 1000
    return trials.with_columns(
        pl.when(pl.col("ns_per_unit").is_not_null()).then(1e4 * work * jitter).alias("ns_per_unit")
    )


def test_an_effect_has_its_ratio_within_its_interval_and_the_same_results(done: Done) -> None:
    result = done.effect("work", "single")
    assert result.ratio == pytest.approx(0.5, rel=0.01)
    assert result.low is not None and result.high is not None and result.low < result.ratio < result.high
    assert result.parity is not None and result.parity.verdict is ParityVerdict.IDENTICAL


FAULTS = [
    ("raise", Outcome.FAILED, "the toy was told to raise"),
    ("kill", Outcome.FAILED, "SIGKILL"),
    ("segv", Outcome.FAILED, "SIGSEGV"),
    ("exit", Outcome.FAILED, "status 3"),
    ("oom", Outcome.OOM, "told to run out of memory"),
    ("late", Outcome.FAILED, "failed while being timed"),
]


@pytest.mark.parametrize(("level", "outcome", "reason"), FAULTS)
def test_every_fault_is_an_outcome_with_a_reason(
    done: Done, level: str, outcome: Outcome, reason: str
) -> None:
    result = done.effect("trouble", level)
    assert result.word == outcome.value
    assert reason in result.note
    assert result.ratio is None


def test_an_arm_that_keeps_failing_is_given_up_after_two_rounds(done: Done) -> None:
    timing = done.trials.filter((pl.col("label") == "trouble=raise") & (pl.col("kind") == "timing"))
    assert timing.height == 2


def test_the_other_arms_have_all_their_rounds(done: Done) -> None:
    for label in ("baseline", "work=single", "idle=on", "sign=wrong"):
        used = done.trials.filter((pl.col("label") == label) & pl.col("used") & (pl.col("outcome") == "ok"))
        assert sorted(used["round"]) == list(range(3))


def test_no_process_of_the_sweep_is_left(done: Done) -> None:
    path = str(done.folder.path)

    def left() -> list[Path]:
        return [process for process in Path("/proc").glob("[0-9]*") if path in _command_line(process)]

    until(lambda: not left(), "their end")
    assert left() == []


def test_a_damaged_record_is_named_and_its_round_measured_again(done: Done) -> None:
    victim = next(done.folder.path.glob("trials/*/p000-r002-a0/record.json"))
    whole = victim.read_text()
    victim.write_text(whole[: len(whole) // 2])
    try:
        progress = read_progress(done.folder, done.manifest)
        assert progress.unfinished_rounds(done.manifest.packs[0]) == [2]
        assert str(victim) in progress.damaged[0]
    finally:
        victim.write_text(whole)


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


Run = Callable[[SweepCommand], tuple[SweepFolder, Manifest]]


@pytest.fixture
def run_sweep() -> Run:
    """Plans and runs what is unfinished, as the command does."""

    def run(command: SweepCommand) -> tuple[SweepFolder, Manifest]:
        folder, manifest = prepared(command)
        progress = read_progress(folder, manifest)
        packs = [
            p for p in manifest.packs if progress.unfinished_rounds(p, frozenset(map(Outcome, command.retry)))
        ]
        assert not launch.launch(folder, manifest, packs, command.cluster, Device(), tuple(command.retry))
        return folder, manifest

    return run


def started(folder: SweepFolder) -> dict[str, float]:
    """When each trial with a record was started, by folder."""
    return {str(path.parent): path.stat().st_mtime_ns for path in folder.path.glob("trials/*/*/record.json")}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a small sweep is kept that was measured once."""
    return tmp_path_factory.mktemp("kept") / "runs"


@pytest.fixture
def toy(command, run_sweep: Run, kept: Path) -> SweepCommand:
    """A small sweep that is measured, in a folder of the test's own."""
    toy = command(DesignConfig("one_at_a_time", toggles=["work"]))
    if kept.exists():
        shutil.copytree(kept, toy.runs, symlinks=True)
    else:
        run_sweep(toy)
        shutil.copytree(toy.runs, kept, symlinks=True)
    return toy


@pytest.fixture
def folder(toy: SweepCommand) -> SweepFolder:
    (path,) = Path(toy.runs).iterdir()
    return SweepFolder(path)


def test_the_same_command_again_measures_nothing(
    toy: SweepCommand, folder: SweepFolder, run_sweep: Run
) -> None:
    before = started(folder)
    run_sweep(toy)
    assert started(folder) == before


def test_resume_repeats_an_unfinished_round_whole_and_nothing_else(
    toy: SweepCommand, folder: SweepFolder, run_sweep: Run
) -> None:
    before = started(folder)
    lost = next(folder.path.glob("trials/*/p000-r001-a0/record.json"))
    lost.unlink()
    _, manifest = run_sweep(toy)
    new = set(started(folder)) - set(before)
    assert sorted(Path(path).name for path in new) == ["p000-r001-a1", "p000-r001-a1"]
    trials = collect.collect(folder, manifest)
    assert set(trials.filter((pl.col("round") == 1) & pl.col("used"))["attempt"]) == {1}


def begun(command: SweepCommand, label: str) -> tuple[PackRun, Arm]:
    """The only pack of a sweep, and one of its arms."""
    folder, manifest = prepared(command)
    return PackRun(folder, manifest, manifest.packs[0]), next(a for a in manifest.arms if a.label == label)


def evidence_of(command: SweepCommand, label: str) -> TrialRecord:
    """Record of one arm's evidence trial, started as its pack would."""
    run, arm = begun(command, label)
    run.support(arm, Kind.EVIDENCE)
    return run.progress.other[arm.id, Kind.EVIDENCE].record


def test_a_trial_past_its_time_is_ended_and_recorded_as_timeout(command) -> None:
    hanging = command(DesignConfig("one_at_a_time", levels={"trouble": ["hang"]}), measure={"timeout_s": 1.5})
    record = evidence_of(hanging, "trouble=hang")
    assert record.outcome is Outcome.TIMEOUT
    assert record.failure is not None and record.failure.message == "did not end within 1.5 s"
    assert record.ended - record.started >= 1.5


@pytest.mark.slow
def test_variables_of_a_level_are_set_before_anything_is_imported(command) -> None:
    varied = command(DesignConfig("one_at_a_time", toggles=["variable"]))
    assert evidence_of(varied, "variable=on").numbers["variable"] == 1.0


@pytest.mark.slow
def test_a_level_with_ranks_runs_as_a_process_group_and_writes_one_record(command) -> None:
    run, arm = begun(command(DesignConfig("one_at_a_time", toggles=["group"])), "group=two")
    trial = run.again(arm, Kind.TIMING)
    assert trial.record.outcome is Outcome.OK and trial.record.numbers["ranks"] == 2.0
    own = read_arrays(trial.folder / "iterations.npz")["wall_ns"].sum()  # of rank 0, as the record is
    assert own <= trial.record.region_ns


def test_an_arm_that_did_fewer_units_never_counts(command, run_sweep: Run) -> None:
    skipping = command(
        DesignConfig("one_at_a_time", levels={"skip": ["half"]}), workload="toys.jobs:Countdown"
    )
    folder, manifest = run_sweep(skipping)
    (result,) = compare.compare(folder, manifest, collect.collect(folder, manifest)).effects
    assert result.verdict is Verdict.DIFFERENT
    assert "did 2 of 5 units" in result.note
