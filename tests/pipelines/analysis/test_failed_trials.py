"""What is not there: trials that failed, or ran on another machine, and how they are measured again."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from measured import change, compared, cost, simulated
from rich.console import Console

from perfsweep.pipelines.api import Sweep
from perfsweep.pipelines.commands.comparison import compare
from perfsweep.pipelines.commands.sweep import show_comparison
from perfsweep.pipelines.config.types import ClusterConfig, DesignConfig
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Manifest, SweepFolder

RAISED = {"type": "ValueError", "message": "no such file", "where": "mine.py:7, in step: raise ValueError"}


@pytest.fixture
def measured(command) -> tuple[SweepFolder, Manifest]:
    design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
    return simulated(command(design, measure={"rounds": 4}), cost)


def records(folder: SweepFolder, pattern: str) -> list[Path]:
    return sorted(folder.path.glob(f"trials/*/{pattern}/record.json"))


def shown(folder: SweepFolder, manifest: Manifest) -> tuple[int, str]:
    text = io.StringIO()
    status = show_comparison(Console(file=text, width=300, markup=False), Sweep(folder, manifest))
    return status, text.getvalue()


@pytest.mark.parametrize("pattern", ["*-evidence-a0", "*-r003-a0"])
def test_one_failed_trial_of_any_kind_is_status_1_with_exception_line_and_log(measured, pattern: str) -> None:
    folder, manifest = measured
    record = records(folder, pattern)[0]
    change(record, outcome="failed", failure=RAISED)
    status, text = shown(folder, manifest)
    assert status == SOME_FAILED
    for page in (text, folder.report_file.read_text(), folder.markdown_file.read_text()):
        assert "ValueError: no such file" in page
        assert "mine.py:7, in step" in page
        assert str(record.with_name("log.txt")) in page.replace("<wbr>", "")


@pytest.mark.parametrize(
    ("outcome", "failure", "line"),
    [
        (
            "failed",
            RAISED,
            "once the cause is repaired, the same command with retry=[failed] measures that again",
        ),
        (
            "oom",
            {"type": "JobOutOfMemory", "message": "Slurm ended the job"},
            "memory of the job ran out in work=single: raise cluster.memory, and add retry=[oom]",
        ),
        ("oom", {"type": "OutOfMemoryError", "message": "CUDA"}, None),
    ],
    ids=["raised", "memory of the job", "memory of the device"],
)
def test_failed_trials_are_followed_by_how_they_are_measured_again(
    measured, outcome: str, failure: dict[str, str] | None, line: str | None
) -> None:
    folder, manifest = measured
    victim = manifest.effects[0].pairs[0][0]
    for record in records(folder, "*-r00[12]-a0"):
        if victim in str(record):
            change(record, outcome=outcome, failure=failure)
    (row,) = compared(folder, manifest).failures
    assert (row.trials, row.retired) == ("2 timing", True)
    _, text = shown(folder, manifest)
    pages = (text, folder.report_file.read_text(), folder.markdown_file.read_text())
    for page in pages:
        plain = page.replace("<wbr>", "").replace("\\", "")
        assert (line in plain) if line else "retry=" not in plain, page[-2000:]


@pytest.mark.parametrize("ended", [2.0, 0.5], ids=["later", "and the clock was set back"])
def test_a_failure_that_a_later_attempt_mended_is_none(measured, ended: float) -> None:
    folder, manifest = measured
    for record in records(folder, "*-r003-a0"):
        again = record.parent.with_name(record.parent.name.replace("-a0", "-a1"))
        again.mkdir()
        (again / "record.json").write_text(record.read_text())
        change(again / "record.json", attempt=1, ended=ended)
        change(record, outcome="failed", failure=RAISED, ended=1.0)
    assert not compared(folder, manifest).failures
    assert shown(folder, manifest)[0] == DONE


ROUNDS = 8


@pytest.fixture
def mixed(command) -> tuple[SweepFolder, Manifest]:
    """Two packs, the second of which ran on another GPU."""
    design = DesignConfig("ladder", levels={"slab": [2, 4, 8, 16]})
    sweep = command(design, measure={"rounds": ROUNDS})
    sweep.cluster = ClusterConfig(executor="slurm", arms_per_pack=3)
    folder, manifest = simulated(sweep, cost, iterations=20)
    assert len(manifest.packs) == 2
    for record in records(folder, "p001-r*"):
        change(record, keys={"device": "H100"}, region_ns=int(1e8))
    return folder, manifest


@pytest.mark.slow
def test_the_same_command_measures_them_again_and_then_they_count(mixed) -> None:
    folder, manifest = mixed
    progress = read_progress(folder, manifest)
    assert {pack.id: len(progress.unfinished_rounds(pack)) for pack in manifest.packs} == {
        "p000": 0,
        "p001": ROUNDS,
    }
    for record in records(folder, "p001-r*"):
        again = record.parent.with_name(record.parent.name.replace("-a0", "-a1"))
        again.mkdir()
        (again / "record.json").write_text(record.read_text())
        change(again / "record.json", keys={"device": "fake"}, attempt=1, disturbed=["a neighbour"])
    found = compared(folder, manifest)
    assert all(result.rounds == ROUNDS for result in found.effects)
    assert not found.missing
    assert len(found.elsewhere) == 1, "and what was measured there stays readable"
    assert compare(str(folder.path)) == DONE


@pytest.mark.slow
def test_what_was_measured_again_with_another_torch_counts_however_often_the_older_was(command) -> None:
    design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
    folder, manifest = simulated(command(design, measure={"rounds": 6}), cost)
    for record in records(folder, "p000-r*"):
        for attempt, torch in ((1, "old"), (2, "new")):
            again = record.parent.with_name(record.parent.name.replace("-a0", f"-a{attempt}"))
            again.mkdir()
            (again / "record.json").write_text(record.read_text())
            keys = {"device": "fake", "torch": torch}
            change(again / "record.json", keys=keys, attempt=attempt, started=float(attempt))
        change(record, keys={"device": "fake", "torch": "old"})
    assert read_progress(folder, manifest).machine == {"device": "fake", "torch": "new"}
