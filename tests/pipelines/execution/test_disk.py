"""Which trials a disk ended, and which an arm's own mistake did."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from perfsweep.pipelines.execution.disk import LEAST_BYTES, refuse_disk
from perfsweep.pipelines.execution.spawn import termination_of
from perfsweep.pipelines.store.records import Failure, Kind, Outcome, TrialRecord
from perfsweep.pipelines.store.trial_schema import UNWRITTEN


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    folder = tmp_path / "sweep/trials/arm/p000-r0-a0"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text("{}")
    return folder


def record(message: str | None) -> TrialRecord:
    failure = None if message is None else Failure(type="OSError", message=message)
    own = {"arm": "a", "kind": Kind.TIMING, "pack": "p000", "round": 0, "attempt": 0}
    return TrialRecord(outcome=Outcome.FAILED, failure=failure, **own)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "place", "disk"),
    [
        (errno.ENOSPC, "/elsewhere/file", True),
        (errno.EDQUOT, "/elsewhere/file", True),
        (errno.EACCES, "{sweep}/trials/arm", True),
        (errno.EPERM, "{sweep}/cache", True),
        (errno.EROFS, "{sweep}/cache", True),
        (errno.EROFS, "", True),
        (errno.EACCES, "/elsewhere/file", False),
        (errno.EROFS, "{sweep}-other/file", False),
        (errno.ENOENT, "{sweep}/cache", False),
    ],
)
def test_a_full_disk_and_a_closed_folder_of_the_sweep_blame_no_arm(
    trial: Path, number: int, place: str, disk: bool
) -> None:
    named = place.format(sweep=trial.parents[2])
    found = record(f"[Errno {number}] {os.strerror(number)}" + (f": '{named}'" if named else ""))
    if not disk:
        refuse_disk(trial, found)
        assert (trial / "record.json").exists()
        return
    with pytest.raises(OSError) as refused:
        refuse_disk(trial, found)
    assert (refused.value.errno, refused.value.filename) == (number, named or str(trial))
    assert not (trial / "record.json").exists()


def test_a_trial_that_could_not_write_blames_no_arm_though_its_disk_has_room_again(trial: Path) -> None:
    (trial / "record.json").unlink()
    refuse_disk(trial, None, termination_of(1, False))
    with pytest.raises(OSError, match="a trial could not write there what came of it") as refused:
        refuse_disk(trial, None, termination_of(UNWRITTEN, False))
    assert refused.value.filename == str(trial)


@pytest.mark.parametrize("message", [None, "a shape of 3", "mine [Errno 28] it says"])
def test_any_other_failure_is_the_arms(trial: Path, message: str | None) -> None:
    refuse_disk(trial, record(message))
    assert (trial / "record.json").exists()


@pytest.mark.parametrize(
    ("blocks", "size", "full"),
    [(0, 4096, True), (15, 4096, True), (16, 4096, False), (1, LEAST_BYTES, False)],
)
def test_one_without_a_record_could_not_write_it_where_little_is_free(
    trial: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, size: int, full: bool
) -> None:
    disk = type("Disk", (), {"f_bavail": blocks, "f_frsize": size})()
    monkeypatch.setattr(os, "statvfs", lambda place: disk)
    if full:
        with pytest.raises(OSError) as refused:
            refuse_disk(trial, None)
        assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(trial))
    else:
        refuse_disk(trial, None)
