"""What killed writers leave goes when nothing runs any more; what somebody still writes stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfsweep.pipelines.store import locks
from perfsweep.pipelines.store.records import SweepFolder


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    found = SweepFolder(tmp_path / "sweep")
    (found.path / "trials/a/p000-r000-a0").mkdir(parents=True)
    (found.path / "trials/a/p000-r000-a0/record.json").touch()
    return found


def made(folder: SweepFolder, name: str) -> Path:
    file = folder.path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return file


@pytest.mark.parametrize(
    "name",
    [
        "trials/a/p000-r000-a0/.iterations.npz.{pid}.0badc0de.tmp",
        "packs/p000/attempts/.0.json.{pid}.0badc0de.tmp",
        ".manifest.jsonl.{pid}.0badc0de.tmp",
        "code/.0123456789ab.{pid}/conf/run.yaml",
    ],
)
def test_what_a_dead_writer_left_goes_and_what_a_live_one_writes_stays(
    folder: SweepFolder, dead: int, name: str
) -> None:
    gone, kept = (made(folder, name.format(pid=pid)) for pid in (dead, os.getpid()))
    locks.remove_leftovers(folder)
    assert kept.exists() and not gone.exists()
    assert (folder.path / "trials/a/p000-r000-a0/record.json").exists()


def test_what_elements_of_an_array_left_goes(folder: SweepFolder) -> None:
    names = ("submissions/abc/.0.end-0.json.0badc0de.tmp", "submissions/12_submitted.pkl.save_tmp")
    gone, kept = [made(folder, name) for name in names], made(folder, "submissions/abc/0.end-0.json")
    locks.remove_leftovers(folder)
    assert kept.exists() and not any(file.exists() for file in gone)


@pytest.mark.parametrize(("alive", "stays"), [(True, True), (False, False)])
def test_scratch_of_a_trial_goes_with_its_process(
    folder: SweepFolder, dead: int, alive: bool, stays: bool
) -> None:
    trial = folder.path / "trials/a/p000-r000-a0"
    made(folder, "trials/a/p000-r000-a0/scratch/rank0/large")
    (trial / "status.json").write_text(json.dumps({"stage": "timing", "pid": os.getpid() if alive else dead}))
    locks.remove_leftovers(folder)
    assert (trial / "scratch").exists() is stays


def test_scratch_on_a_disk_of_a_node_goes_as_a_link_and_nothing_behind_it(
    folder: SweepFolder, tmp_path: Path
) -> None:
    behind = tmp_path / "disk"
    behind.mkdir()
    (folder.path / "trials/a/p000-r000-a0/scratch").symlink_to(behind)
    locks.remove_leftovers(folder)
    assert behind.exists() and not (folder.path / "trials/a/p000-r000-a0/scratch").is_symlink()


def test_a_sweep_without_leftovers_is_as_it_was(folder: SweepFolder) -> None:
    made(folder, "code/0123456789ab/pipelines/.hidden.17")
    before = sorted(folder.path.rglob("*"))
    locks.remove_leftovers(folder)
    assert sorted(folder.path.rglob("*")) == before
