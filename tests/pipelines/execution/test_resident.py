"""Processes that stay: one for each arm and generation, taking turns, and every way in which one can fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from perfsweep.pipelines.analysis import collect, compare
from perfsweep.pipelines.config.types import DesignConfig, SweepCommand
from perfsweep.pipelines.execution import launch, pack
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Outcome, SweepFolder, TrialRecord, read_record
from perfsweep.workloads.api import Device

pytestmark = pytest.mark.slow

RESIDENT = {"isolation": "resident", "rounds": 4, "turns": 2, "iterations": 4}
WORK = DesignConfig("one_at_a_time", levels={"work": ["single"]})

Prepare = Callable[[SweepCommand], PackRun]


@pytest.fixture
def prepared() -> Prepare:
    """The only pack of a sweep, ready to run in this process."""

    def prepare(command: SweepCommand) -> PackRun:
        manifest = plan.make_plan(command, Device())
        folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
        launch.prepare(folder, manifest, "")
        return PackRun(folder, manifest, manifest.packs[0])

    return prepare


def timings(run: PackRun, label: str = "baseline") -> dict[int, TrialRecord]:
    """Records of an arm's rounds, of the latest attempt."""
    arm = next(arm for arm in run.manifest.arms if arm.label == label)
    found = {}
    for path, _, stage, _ in run.folder.trial_dirs(arm.id):
        if stage.startswith("r") and (record := read_record(path)):
            found[int(stage[1:])] = record
    return found


def test_rounds_of_one_generation_share_one_warm_up_and_the_next_generation_has_its_own(
    command, prepared: Prepare
) -> None:
    run = prepared(command(WORK, measure=RESIDENT))
    run.run()
    records = timings(run)
    assert [records[n].outcome for n in range(4)] == [Outcome.OK] * 4
    assert [records[n].generation for n in range(4)] == [0, 0, 1, 1]
    warm = [(records[n].setup_s, records[n].first_iteration_s) for n in range(4)]
    assert warm[0] == warm[1] and warm[2] == warm[3] and warm[0] != warm[2]
    assert {records[n].iterations for n in range(4)} == {4}


def test_turns_of_two_arms_never_overlap(command, prepared: Prepare) -> None:
    run = prepared(command(WORK, measure=RESIDENT))
    run.run()
    turns = sorted(
        (r.started, r.ended) for label in ("baseline", "work=single") for r in timings(run, label).values()
    )
    assert len(turns) == 8
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(turns))


def test_generations_not_turns_are_what_an_interval_counts(command, prepared: Prepare) -> None:
    run = prepared(command(WORK, measure=RESIDENT))
    run.run()
    trials = collect.collect(run.folder, run.manifest)
    assert trials.filter(pl.col("used")).height == 8
    (result,) = compare.compare(run.folder, run.manifest, trials).effects
    assert result.derivation is not None and result.derivation.estimate.n == 2
    assert result.ratio is not None


def test_a_process_killed_between_its_turns_fails_the_rest_of_its_generation_and_nothing_else(
    command, prepared: Prepare
) -> None:
    late = DesignConfig("one_at_a_time", levels={"trouble": ["fourth_turn"]})
    run = prepared(command(late, measure={**RESIDENT, "turns": 4}))
    run.run()
    victim, neighbour = timings(run, "trouble=fourth_turn"), timings(run)
    outcomes = [victim[n].outcome for n in range(4)]
    assert outcomes[0] is Outcome.OK
    assert outcomes[-1] is Outcome.FAILED
    failure = victim[3].failure
    assert failure is not None and "SIGKILL" in failure.message
    assert [neighbour[n].outcome for n in range(4)] == [Outcome.OK] * 4
    assert not list(run.folder.path.glob("trials/*/*/scratch")), (
        "the pack removes what a killed process cannot"
    )


@pytest.mark.parametrize(
    ("trouble", "outcome"), [("raise", Outcome.FAILED), ("oom", Outcome.OOM), ("kill", Outcome.FAILED)]
)
def test_an_arm_that_fails_before_its_first_turn_is_an_outcome(
    command, prepared: Prepare, trouble: str, outcome
) -> None:
    run = prepared(command(DesignConfig("one_at_a_time", levels={"trouble": [trouble]}), measure=RESIDENT))
    run.run()
    assert {record.outcome for record in timings(run, f"trouble={trouble}").values()} == {outcome}
    assert [record.outcome for record in timings(run).values()] == [Outcome.OK] * 4


def test_an_arm_that_hangs_is_ended_at_its_time_and_the_others_go_on(command, prepared: Prepare) -> None:
    hang = DesignConfig("one_at_a_time", levels={"trouble": ["hang"]})
    run = prepared(command(hang, measure={**RESIDENT, "timeout_s": 1.0}))
    run._generation(0)
    assert {record.outcome for record in timings(run, "trouble=hang").values()} == {Outcome.TIMEOUT}
    assert [record.outcome for record in timings(run).values()] == [Outcome.OK] * 2


def test_an_interrupted_generation_is_measured_again_whole(command, prepared: Prepare) -> None:
    toy = command(WORK, measure=RESIDENT)
    run = prepared(toy)
    run.run()
    next(run.folder.path.glob("trials/*/p000-r003-a0/record.json")).unlink()
    again = prepared(toy)
    assert again.progress.unfinished_rounds(again.pack) == [2, 3]
    again.run()
    assert read_progress(run.folder, run.manifest).finished_attempt(run.pack, 2) == 1
    names = {path.parent.name for path in run.folder.path.glob("trials/*/*/record.json")}
    assert {"p000-r002-a1", "p000-r003-a1"} <= names and "p000-r000-a1" not in names


def test_variables_and_ranks_of_levels_reach_processes_that_stay(command, prepared: Prepare) -> None:
    run = prepared(command(DesignConfig("one_at_a_time", toggles=["variable", "group"]), measure=RESIDENT))
    run._generation(0)
    assert {record.numbers["variable"] for record in timings(run, "variable=on").values()} == {1.0}
    assert {record.numbers["ranks"] for record in timings(run, "group=two").values()} == {2.0}


def test_jobs_take_turns_too(command, prepared: Prepare) -> None:
    jobs = command(
        DesignConfig("one_at_a_time", levels={"pause_ms": [1]}),
        workload="toys.jobs:Countdown",
        measure=RESIDENT,
    )
    run = prepared(jobs)
    run.run()
    records = timings(run)
    # One job is discarded in warm-up; then each turn is a whole job of its own.
    assert [records[n].counters["jobs"] for n in range(4)] == [2.0, 3.0, 2.0, 3.0]
    assert {record.units for record in records.values()} == {5.0}


def test_arms_that_do_not_fit_into_memory_together_run_in_fresh_processes(
    command, prepared: Prepare, capsys: pytest.CaptureFixture[str]
) -> None:
    run = prepared(command(WORK, measure=RESIDENT))
    run._device = Device(memory_bytes=10 * 2**20)
    run.run()
    assert "fresh process instead" in capsys.readouterr().out
    assert {record.generation for record in timings(run).values()} == {None}
    trials = collect.collect(run.folder, run.manifest)
    assert any("fresh processes" in note for note in compare.compare(run.folder, run.manifest, trials).notes)


def test_no_process_that_stays_outlives_its_pack(command, prepared: Prepare) -> None:
    run = prepared(command(WORK, measure=RESIDENT))
    run.run()
    pids = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if str(run.folder.path) in _text(path)
    ]
    assert pids == []


def test_an_interrupt_between_turns_ends_all_processes(
    command, prepared: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(command(WORK, measure=RESIDENT))
    children: list[int] = []
    starter = run._servers.starter
    started = starter.start

    def start(*arguments, **options):
        found = started(*arguments, **options)
        children.extend(child.pid for child in found)
        return found

    def interrupted(found: object) -> None:
        raise pack.Interrupted("SIGTERM")

    monkeypatch.setattr(starter, "start", start)
    monkeypatch.setattr(run, "_note", interrupted)
    with pytest.raises(pack.Interrupted):
        run._generation(0)
    assert len(children) == 2
    assert not any(_runs(pid) for pid in children)


def _runs(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
