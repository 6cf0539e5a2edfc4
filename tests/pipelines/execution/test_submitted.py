"""What of a sweep was submitted elsewhere, what is refused while it may run, and why a pack broke off."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.execution import launch, submitted
from perfsweep.pipelines.execution.submitted import COLLECT, log_files, why
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.slurm.executor import JOURNAL
from perfsweep.slurm.journal import Journal, Verdict
from perfsweep.slurm.states import Action, End
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError, RecordError


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    return SweepFolder(tmp_path / "sweep")


def submit(folder: SweepFolder, *jobs: str, ended: bool = False) -> None:
    """Note jobs in the journal as Slurm's executor does."""
    journal = Journal(folder.path / JOURNAL)
    submission = journal.submitting(jobs, None)
    for index in range(len(jobs)):
        if ended:
            journal.ended(submission, index, Verdict(End.DONE, Action.NONE, ""))


@pytest.fixture
def manifest(command: Callable) -> Manifest:
    return plan.make_plan(command(DesignConfig("one_at_a_time", levels={"work": ["single"]})), Device())


def test_packs_that_lack_rounds_and_that_nobody_submitted_are_named(
    folder: SweepFolder, manifest: Manifest
) -> None:
    folder.write_manifest(manifest)
    names = [pack.id for pack in manifest.packs]
    assert submitted.unsubmitted(folder, manifest) == names
    submit(folder, f"{names[0]}+p999")
    assert submitted.unsubmitted(folder, manifest) == names[1:]


def test_another_plan_is_refused_while_jobs_of_the_first_may_run(
    folder: SweepFolder, manifest: Manifest
) -> None:
    other = manifest.model_copy(update={"sweep": manifest.sweep.model_copy(update={"code": "other"})})
    submitted.refuse_other_plan(folder, other)
    submit(folder, "p000")
    submitted.refuse_other_plan(folder, other)  # there is no plan yet that it could differ from
    folder.write_manifest(manifest)
    submitted.refuse_other_plan(folder, manifest)
    with pytest.raises(ConfigError, match="p000 of an earlier plan may still run on Slurm; wait with") as no:
        submitted.refuse_other_plan(folder, other)
    for word in ("perfsweep wait", "perfsweep cancel", "give this sweep another name="):
        assert word in str(no.value)


def test_a_damaged_plan_is_written_anew_though_jobs_may_run(folder: SweepFolder, manifest: Manifest) -> None:
    folder.write_manifest(manifest)
    submit(folder, "p000")
    whole = folder.manifest_file.read_bytes()
    folder.manifest_file.write_bytes(whole[:-40])
    with pytest.raises(RecordError):
        folder.read_manifest()
    submitted.refuse_other_plan(folder, manifest)
    launch.prepare(folder, manifest, "")
    assert folder.read_manifest() == manifest
    assert not list(folder.code_dir.glob("libraries-*")), "no arm runs in an environment of its own"
    other = manifest.model_copy(update={"sweep": manifest.sweep.model_copy(update={"code": "other"})})
    with pytest.raises(ConfigError, match="p000 of an earlier plan"):
        submitted.refuse_other_plan(folder, other)


@pytest.mark.parametrize(("jobs", "words"), [(7, "p0, p1, p2, p3, p4 and 2 more may still run")])
def test_what_may_run_elsewhere_is_not_measured_here_too(folder: SweepFolder, jobs: int, words: str) -> None:
    submit(folder, *(f"p{n}" for n in range(jobs)), COLLECT)
    submit(folder, "p9", ended=True)
    submitted.refuse_second_place(folder, "slurm")
    with pytest.raises(ConfigError) as refused:
        submitted.refuse_second_place(folder, "local")
    assert f": {words} on Slurm, so nothing is measured here; wait" in str(refused.value)


@pytest.mark.parametrize("ended", [False, True])
def test_what_killed_writers_left_is_removed_unless_somebody_may_still_write(
    folder: SweepFolder, ended: bool
) -> None:
    submit(folder, COLLECT, ended=ended)
    left = folder.path / ".record.json.999999999.0123abcd.tmp"
    for file in (left, folder.manifest_file):
        file.touch()
    submitted.tidy(folder)
    assert left.exists() != ended


@pytest.fixture
def logged(tmp_path: Path) -> SweepFolder:
    logged = SweepFolder(tmp_path)
    logged.pack_dir("p000").mkdir(parents=True)
    return logged


def script(logged: SweepFolder, array: str, *jobs: str) -> Path:
    journal = Journal(logged.path / JOURNAL)
    journal.submitted(journal.submitting(jobs, None).token, array)
    return logged.path / "submissions" / f"{array}_0_0_log.out"


def log(logged: SweepFolder) -> Path:
    return logged.pack_dir("p000") / "log.txt"


def test_the_scripts_of_its_jobs_come_before_its_log(logged: SweepFolder) -> None:
    assert log_files(logged, "p000") == [log(logged)]
    first, _, shared = (
        script(logged, *words) for words in (("7", "p000"), ("8", "p001"), ("9", "p000+p001"))
    )
    assert log_files(logged, "p000") == [first, shared, log(logged)]


def test_an_empty_log_is_explained_by_what_can_no_longer_be_written(
    logged: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    log(logged).touch()
    assert why(logged, "p000", {}) == "the log is empty: it was killed"
    monkeypatch.setattr(os, "fsync", full)
    closed = f"nothing can be written in {logged.path} (No space left on device); finished rounds are kept"
    assert why(logged, "p000", {}).startswith(closed)


def test_the_last_lines_of_its_log_are_told_behind_the_note(logged: SweepFolder) -> None:
    log(logged).write_text("\n".join(f"line {n}" for n in range(20)) + "\n\n")
    said = why(logged, "p000", {"p000": "cancelled", "p001": "other"}).splitlines()
    assert said[:2] == ["cancelled", f"the end of {log(logged)}:"]
    assert said[2:] == [f"line {n}" for n in range(12, 20)]
