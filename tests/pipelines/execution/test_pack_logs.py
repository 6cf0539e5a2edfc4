"""Why a pack broke off: its log, and what the batch scripts that were to start it printed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfsweep.pipelines.execution.submitted import log_files, why
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.slurm.executor import JOURNAL
from perfsweep.slurm.journal import Journal


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    folder = SweepFolder(tmp_path)
    folder.pack_dir("p000").mkdir(parents=True)
    return folder


def script(folder: SweepFolder, array: str, *jobs: str) -> Path:
    journal = Journal(folder.path / JOURNAL)
    journal.submitted(journal.submitting(jobs, None).token, array)
    return folder.path / "submissions" / f"{array}_0_0_log.out"


def log(folder: SweepFolder) -> Path:
    return folder.pack_dir("p000") / "log.txt"


def test_the_scripts_of_its_jobs_come_before_its_log(folder: SweepFolder) -> None:
    assert log_files(folder, "p000") == [log(folder)]
    first, _, shared = (
        script(folder, *words) for words in (("7", "p000"), ("8", "p001"), ("9", "p000+p001"))
    )
    assert log_files(folder, "p000") == [first, shared, log(folder)]


def test_the_last_lines_of_its_log_are_told_behind_the_note(folder: SweepFolder) -> None:
    log(folder).write_text("\n".join(f"line {n}" for n in range(20)) + "\n\n")
    said = why(folder, "p000", {"p000": "cancelled", "p001": "other"}).splitlines()
    assert said[:2] == ["cancelled", f"the end of {log(folder)}:"]
    assert said[2:] == [f"line {n}" for n in range(12, 20)]


@pytest.mark.parametrize("jobs", [["7"], ["7", "8"], ["7", "8", "9"]])
def test_of_scripts_the_last_is_told_after_the_log(folder: SweepFolder, jobs: list[str]) -> None:
    scripts = [script(folder, job, "p000") for job in jobs]
    scripts[0].parent.mkdir(exist_ok=True)
    for job, file in zip(jobs, scripts, strict=True):
        file.write_text(f"printed by {job}")
    assert why(folder, "p000", {}).splitlines() == [
        "the pack never began to write its log",
        f"the end of {scripts[-1]}:",
        f"printed by {jobs[-1]}",
    ]


@pytest.mark.parametrize(
    ("free", "words"), [(1, "the log is empty: it was killed, or the disk is full"), (0, "its disk is full")]
)
def test_an_empty_log_tells_of_a_kill_or_of_a_full_disk(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch, free: int, words: str
) -> None:
    log(folder).write_text(" \n")
    monkeypatch.setattr(os, "statvfs", lambda place: type("Disk", (), {"f_bavail": free})())
    assert why(folder, "p000", {}) == words
