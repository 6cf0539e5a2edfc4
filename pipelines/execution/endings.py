"""What came of trials that have ended: their records, or ones that are written in their place.

A trial that a full or closed disk ended says nothing of its arm: its pack ends, to try it again later.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from perfsweep.pipelines.execution.spawn import NO_RECORD, NOT_WRITTEN, Termination, without_exception
from perfsweep.pipelines.store.files import refusal
from perfsweep.pipelines.store.records import (
    Outcome,
    TrialRecord,
    TrialSpec,
    read_rank_failures,
    read_record,
    read_spec,
    write_record,
)
from perfsweep.pipelines.store.writers import vanished
from perfsweep.pipelines.trial import scratch
from perfsweep.workloads.errors import RecordError

LEAST_BYTES, LEAST_FILES = 2**16, 16
"""Free space, and files, below which a trial that left no record could not write it."""

_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
"""What says something of the machine where the folder is the sweep's own, and of the arm where it is not."""


def record_of(spec: TrialSpec, folder: Path, began: float, ended: Termination | None) -> TrialRecord:
    """The record of a trial that has ended; one is written if the trial left none, or a damaged one.

    Parameters
    ----------
    began : when it did, by `time.monotonic`
    ended : how its process ended, where that was not with status 0

    Raises
    ------
    OSError
        A disk is full or closed; see `refuse_disk`.
    RecordError
        Its spec is damaged, so that the arm has not failed.
    """
    try:
        record = read_record(folder)
    except RecordError:
        record = None  # a damaged record is no record: the termination of the process says what happened
    refuse_disk(folder, record, ended)
    if record is None:
        read_spec(folder / "spec.json")
        scratch.remove(folder)
        found = failure_of(folder, ended)
        record = TrialRecord.of(spec, began, outcome=found.outcome, failure=found.failure)
        write_record(folder, record)
    return record


def failure_of(folder: Path, ended: Termination | None) -> Termination:
    """How a trial ended that left no record: of several ranks that raised, the first one says why."""
    by_force = ended is not None and ended.failure.type != NO_RECORD
    if not by_force and (failures := read_rank_failures(folder)):
        return Termination(*failures[0])
    return ended or Termination(Outcome.FAILED, without_exception(0))


def refuse_disk(folder: Path, record: TrialRecord | None, ended: Termination | None = None) -> None:
    """Raise where a trial ended since it could not write, and take back the record that blames its arm.

    Parameters
    ----------
    folder : the trial's
    record : what the trial wrote; None where it wrote nothing
    ended : how its process ended, where that was not with status 0

    Raises
    ------
    OSError
        The disk of the sweep, or one that the trial wrote to, is full; or a folder of the sweep is closed,
        or gone.
    """
    if record is None:
        if not (folder / "spec.json").exists():  # which was there before the trial began
            raise vanished(folder.parents[2])
        disk = os.statvfs(folder)
        no_files = disk.f_files > 0 and disk.f_favail < LEAST_FILES  # some file systems count no files
        if no_files or disk.f_bavail * disk.f_frsize < LEAST_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        if ended is not None and ended.failure.type == NOT_WRITTEN:  # on a disk that has room again
            raise OSError(errno.EIO, "a trial could not write there what came of it", str(folder))
        return
    found = re.match(r"\[Errno (\d+)\][^']*(?:'(.*)')?", record.failure.message) if record.failure else None
    if found is None:
        return
    number, place = int(found[1]), found[2] or str(folder)
    # Without a name it may be of /dev/shm, where processes keep what they share.
    ours = Path(place).is_relative_to(folder.parents[2]) if found[2] else bool(refusal(folder))
    if number in _FULL or (number in _FORBIDDEN and ours):
        (folder / "record.json").unlink(missing_ok=True)
        raise OSError(number, os.strerror(number), place)
