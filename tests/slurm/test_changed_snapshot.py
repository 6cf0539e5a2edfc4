"""Jobs run the code that was submitted: one whose snapshot has changed since says so, and runs nothing."""

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
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    source = tmp_path / "checkout" / "perfsweep"
    source.mkdir(parents=True)
    (source / "module.py").write_text("answer = 42\n")
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "module.pyc").write_bytes(b"compiled")
    monkeypatch.setattr(code_snapshot, "OURS", source.parent)
    return take(tmp_path / "code")


def started(place: Path, digest: str | None) -> tuple[int, str, list[str]]:
    """Status and log of a job of this snapshot, and the records that it left."""
    folder = place.parents[1]
    job = {"name": "p000", "command": ["echo", "it runs"], "env": {}, "log": str(folder / "log.txt")}
    settings = {"requeue": False, "max_retries": 0, "heartbeat_s": 1, "code": str(place), "digest": digest}
    (folder / "abc.json").write_text(json.dumps({**settings, "jobs": [job]}))
    command = [sys.executable, "-P", str(Path(element.__file__)), str(folder / "abc.json")]
    status = subprocess.run(command, check=False, env={}).returncode
    ends = [json.loads(file.read_text())["status"] for file in (folder / "abc").glob("*.end-*.json")]
    return status, (folder / "log.txt").read_text(), ends


def test_what_was_submitted_runs(place: Path) -> None:
    (place / "perfsweep" / "__pycache__" / "another.pyc").write_bytes(b"compiled by a job")
    status, log, ends = started(place, code_snapshot.digest(place))
    assert (status, ends) == (0, [0]) and "it runs" in log


@pytest.mark.parametrize(
    "change",
    [
        lambda package: (package / "module.py").write_text("answer = 43\n"),
        lambda package: (package / "module.py").unlink(),
        lambda package: (package / "more.py").write_text(""),
        lambda package: (package / "module.py").rename(package / "renamed.py"),
    ],
    ids=["edited", "lost", "added", "renamed"],
)
def test_a_changed_snapshot_is_refused_in_one_sentence(place: Path, change: Change) -> None:
    change(place / "perfsweep")
    status, log, ends = started(place, code_snapshot.digest(place))
    assert (status, ends) == (element.CHANGED, [element.CHANGED])
    assert "it runs" not in log
    assert f"{place} is not the code that this job was submitted with" in log
    assert "delete that folder and start the same sweep command again" in log


def test_jobs_that_run_from_no_snapshot_are_held_against_nothing(place: Path) -> None:
    (place / "perfsweep" / "module.py").unlink()
    assert code_snapshot.digest(place.parent) is None
    assert started(place, None)[0] == 0
