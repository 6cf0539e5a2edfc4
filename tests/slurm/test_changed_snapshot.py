"""Jobs run the code that was submitted: one whose archive has changed since says so, and runs nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.code_snapshot import take
from perfsweep.slurm import element

Change = Callable[[Path], object]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    source = tmp_path / "checkout" / "perfsweep"
    (source / "slurm").mkdir(parents=True)
    (source / "slurm" / "element.py").write_text("answer = 42\n")
    monkeypatch.setattr(code_snapshot, "OURS", source.parent)
    return take(tmp_path / "code")


def started(archive: Path, digest: str | None) -> tuple[int, str, list[str]]:
    """Status and log of a job of this archive, and the records that it left."""
    folder = archive.parents[2]
    job = {"name": "p000", "command": ["echo", "it runs"], "env": {}, "log": str(folder / "log.txt")}
    settings = {"requeue": False, "max_retries": 0, "heartbeat_s": 1, "code": str(archive), "digest": digest}
    (folder / "abc.json").write_text(json.dumps({**settings, "jobs": [job]}))
    command = [sys.executable, "-P", str(Path(element.__file__)), str(folder / "abc.json")]
    status = subprocess.run(command, check=False, env={}).returncode
    ends = [json.loads(file.read_text())["status"] for file in (folder / "abc").glob("*.end-*.json")]
    return status, (folder / "log.txt").read_text(), ends


def test_what_was_submitted_runs(archive: Path) -> None:
    status, log, ends = started(archive, code_snapshot.digest(archive))
    assert (status, ends) == (0, [0]) and "it runs" in log


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda archive: archive.write_bytes(archive.read_bytes() + b"x"), "it was changed since"),
        (lambda archive: archive.write_bytes(archive.read_bytes()[:-1]), "it was changed since"),
        (Path.unlink, "it cannot be read (No such file or directory)"),
        (lambda archive: archive.unlink() or archive.mkdir(), "it cannot be read (Is a directory)"),
    ],
    ids=["longer", "cut", "lost", "a folder"],
)
def test_an_archive_that_is_another_one_is_refused_in_one_sentence(
    archive: Path, change: Change, says: str
) -> None:
    change(archive)
    status, log, ends = started(archive, code_snapshot.digest(archive))
    assert (status, ends) == (element.CHANGED, [element.CHANGED])
    assert "it runs" not in log
    assert f"{archive} is not the code that this job was submitted with: {says}" in log
    assert "Start the same sweep command again" in log


def test_jobs_that_run_from_no_archive_are_held_against_nothing(archive: Path) -> None:
    other = archive.with_name("scripts") / "none.zip"
    assert code_snapshot.digest(other) is None
    assert started(archive, None)[0] == 0
