"""A trial that a full disk ended says nothing of its arm: its pack ends instead, and tries it again later."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from pipelines.store.records import TrialRecord

LEAST_BYTES = 2**16
"""Free space below which a trial that left no record could not write it."""

_FULL = {errno.ENOSPC, errno.EDQUOT}


def refuse_full_disk(folder: Path, record: TrialRecord | None) -> None:
    """Raise where a trial ended for want of space, and take back the record that blames its arm.

    Parameters
    ----------
    record : what the trial wrote; None where it wrote nothing

    Raises
    ------
    OSError
        The disk of the sweep, or one that the trial wrote to, is full.
    """
    if record is None:
        disk = os.statvfs(folder)
        if disk.f_bavail * disk.f_frsize < LEAST_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        return
    found = re.match(r"\[Errno (\d+)\][^']*(?:'(.*)')?", record.failure.message) if record.failure else None
    if found and int(found[1]) in _FULL:
        (folder / "record.json").unlink(missing_ok=True)
        raise OSError(int(found[1]), os.strerror(int(found[1])), found[2] or str(folder))
