"""Packs on different GPUs: pairs within a pack are valid, and what is missing is measured again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from measured import change, compared, cost, simulated

from perfsweep.pipelines.commands import sessions
from perfsweep.pipelines.commands.comparison import compare
from perfsweep.pipelines.config.types import ClusterConfig, DesignConfig
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Manifest, SweepFolder

pytestmark = pytest.mark.slow

ROUNDS = 8


@pytest.fixture
def mixed(command) -> tuple[SweepFolder, Manifest]:
    """Two packs, the second of which ran on another GPU."""
    design = DesignConfig("ladder", levels={"slab": [2, 4, 8, 16]})
    sweep = command(design, measure={"rounds": ROUNDS})
    sweep.cluster = ClusterConfig(executor="slurm", arms_per_pack=3)
    folder, manifest = simulated(sweep, cost, iterations=20)
    assert len(manifest.packs) == 2
    for record in records(folder, "p001"):
        change(record, keys={"device": "H100"}, region_ns=int(1e8))
    return folder, manifest


def records(folder: SweepFolder, pack: str) -> list[Path]:
    return sorted(folder.path.glob(f"trials/*/{pack}-r*/record.json"))


def test_pairs_on_another_gpu_stand_in_a_table_of_their_own(mixed) -> None:
    folder, manifest = mixed
    found = compared(folder, manifest)
    rounds = {result.effect.level: result.rounds for result in found.effects}
    assert sorted(rounds.values()) == [0, 0, ROUNDS, ROUNDS]
    (other,) = found.elsewhere
    assert other.machine == "H100"
    assert {result.effect.level for result in other.effects} == {one for one in rounds if not rounds[one]}
    assert all(result.rounds == ROUNDS and result.ratio == pytest.approx(1) for result in other.effects)
    assert compare(str(folder.path)) == SOME_FAILED
    for text in (folder.markdown_file.read_text(), folder.report_file.read_text()):
        assert "On H100: ladder" in text
        assert re.search(r"24 timing trials are left out: device is H100 and not fake; pairs in p001", text)
        assert "cluster.gpu_type or cluster.constraint keeps packs on one kind" in text
        assert f"rounds are missing: {ROUNDS} of {ROUNDS} in p001; the same command measures them" in text


def test_the_same_command_measures_them_again_and_then_they_count(mixed) -> None:
    folder, manifest = mixed
    progress = read_progress(folder, manifest)
    assert {pack.id: len(progress.unfinished_rounds(pack)) for pack in manifest.packs} == {
        "p000": 0,
        "p001": ROUNDS,
    }
    for record in records(folder, "p001"):
        again = record.parent.with_name(record.parent.name.replace("-a0", "-a1"))
        again.mkdir()
        (again / "record.json").write_text(record.read_text())
        change(again / "record.json", keys={"device": "fake"}, attempt=1, disturbed=["a neighbour"])
    found = compared(folder, manifest)
    assert all(result.rounds == ROUNDS for result in found.effects)
    assert not found.missing
    assert len(found.elsewhere) == 1, "and what was measured there stays readable"
    assert compare(str(folder.path)) == DONE


def test_status_counts_what_counts(mixed, capsys, monkeypatch) -> None:
    folder, _ = mixed
    monkeypatch.setenv("COLUMNS", "120")
    assert sessions.status(str(folder.path)) == SOME_FAILED
    rows = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if " p00" in line}
    assert f"{ROUNDS} of {ROUNDS}" in rows["p000"] and f"0 of {ROUNDS}" in rows["p001"]


def test_a_pack_that_failed_on_another_gpu_is_told_with_its_exception(mixed) -> None:
    folder, manifest = mixed
    failure = {"type": "RuntimeError", "message": "no kernel image is available"}
    for record in records(folder, "p001")[:2]:
        change(record, outcome="failed", failure=failure)
    (row,) = compared(folder, manifest).failures
    assert row.exception == "RuntimeError: no kernel image is available"


def test_what_was_measured_again_with_another_torch_counts_however_often_the_older_was(command) -> None:
    design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
    folder, manifest = simulated(command(design, measure={"rounds": 6}), cost)
    for record in records(folder, "p000"):
        for attempt, torch in ((1, "old"), (2, "new")):
            again = record.parent.with_name(record.parent.name.replace("-a0", f"-a{attempt}"))
            again.mkdir()
            (again / "record.json").write_text(record.read_text())
            keys = {"device": "fake", "torch": torch}
            change(again / "record.json", keys=keys, attempt=attempt, started=float(attempt))
        change(record, keys={"device": "fake", "torch": "old"})
    assert read_progress(folder, manifest).machine == {"device": "fake", "torch": "new"}
