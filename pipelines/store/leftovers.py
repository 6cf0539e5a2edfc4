"""What killed writers have left: files under temporary names, half copies, folders for scratch."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from perfsweep.pipelines.store.records import SweepFolder, read_pid

_OURS = re.compile(r"^\..+\.(?P<pid>\d+)\.[0-9a-f]{8}\.tmp$")
"""What `perfsweep.pipelines.store.files` writes under."""

_OF_JOBS = re.compile(r"^\..+\.[0-9a-f]{8}\.tmp$|\.save_tmp$")
"""What elements of an array and submitit write under, below `submissions/`."""

_HALF_COPY = re.compile(r"^\..+\.(?P<pid>\d+)$")
"""Snapshots of code before they get their name."""


def remove(folder: SweepFolder) -> None:
    """Remove it, as far as it may be; to be called while no job of the sweep is alive elsewhere.

    What a running process of this machine writes stays: a pack outlives a command that was killed.
    """
    for file in _files(folder):
        with suppress(OSError):  # a folder that cannot be written keeps what is in it
            file.unlink()
    for copy in _copies(folder.code_dir):
        shutil.rmtree(copy, ignore_errors=True)
    for trial in folder.path.glob("trials/*/*"):
        if (trial / "scratch").exists() and not _lives(read_pid(trial)):
            _remove_scratch(trial / "scratch")


def _files(folder: SweepFolder) -> Iterator[Path]:
    for place, folders, names in os.walk(folder.path):
        if Path(place) == folder.path:
            folders[:] = [name for name in folders if name != folder.code_dir.name]
        for name in names:
            ours, of_a_job = _OURS.match(name), "submissions" in Path(place).parts and _OF_JOBS.search(name)
            if (ours and not _lives(int(ours["pid"]))) or (of_a_job and not ours):
                yield Path(place, name)


def _copies(code_dir: Path) -> Iterator[Path]:
    for place in code_dir.iterdir() if code_dir.is_dir() else ():
        match = _HALF_COPY.match(place.name)
        if match and not _lives(int(match["pid"])):
            yield place


def _lives(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


def _remove_scratch(place: Path) -> None:
    """Remove a folder, or the link to one on a disk of a node."""
    if place.is_symlink():
        place.unlink(missing_ok=True)
    else:
        shutil.rmtree(place, ignore_errors=True)
