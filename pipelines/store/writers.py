"""Who may write in a sweep: one command by its lock, of two copies of a pack the later attempt.

Execution on a cluster is at least once: a node that lost contact goes on measuring while its pack is started
again elsewhere. Every start claims a number of its own, so that what two copies write never mixes in one
round.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perfsweep.pipelines.locks import OTHER, holder, holding, our_name
from perfsweep.pipelines.store.files import write_once
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import (
    Failure,
    Manifest,
    Outcome,
    Pack,
    SweepFolder,
    TrialRecord,
    read_pid,
    read_spec,
    write_record,
)
from perfsweep.pipelines.store.trial_schema import JOB_OOM
from perfsweep.workloads.errors import ConfigError


class Taken(ConfigError):
    """Another command holds the sweep."""


@contextmanager
def locked(folder: SweepFolder, otherwise: str = "") -> Iterator[None]:
    """Keep a second command from measuring the same sweep at the same time.

    Raises
    ------
    Taken
        Another command holds the sweep.
    ConfigError
        The folder cannot be written; `otherwise` is what to do where runs=PATH is no option.
    """
    file = folder.path / ".lock"
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        file.open("a").close()
    except OSError as error:
        raise cannot_write(folder, error, otherwise) from error
    with holding(file) as other:
        if other:
            problem = f"{folder.path} is being measured by another command"
            who = holder(file) if other == OTHER else other
            raise Taken(f"{problem}; wait for it, or give this one a name={who}")
        with suppress(OSError):  # on a full disk it is held without a name
            file.write_text(our_name())
        yield


def cannot_write(folder: SweepFolder, error: OSError, otherwise: str = "") -> ConfigError:
    """Say that nothing can be written where a sweep is to lie."""
    if otherwise:
        return ConfigError(f"{folder.path}: cannot write there ({error.strerror}); {otherwise}")
    problem = f"runs={folder.path.parent}: cannot write {folder.path} ({error.strerror})"
    return ConfigError(f"{problem}; choose another with runs=PATH")


def vanished(path: Path) -> OSError:
    """Say that a sweep's folder is gone: what is written under its name now would be part of no sweep."""
    return OSError(
        errno.ENOENT, "it was moved or deleted, or its disk unmounted, during the sweep", str(path)
    )


class Superseded(BaseException):
    """A later attempt at this pack has started; like an interrupt it passes handlers of ordinary mistakes."""


def claim(folder: SweepFolder, pack: Pack) -> int:
    """Take the next number, also while other processes take theirs."""
    number = max([newest(folder, pack.id), *_in_records(folder, pack)], default=-1) + 1
    facts = {
        "time": time.time(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "job": os.environ.get("SLURM_JOB_ID"),
        "restarts": int(os.environ.get("SLURM_RESTART_COUNT", "0")),
    }
    while not write_once(_file(folder, pack.id, number), json.dumps(facts).encode()):
        number += 1
    return number


def newest(folder: SweepFolder, pack: str) -> int:
    """Return the latest attempt's number, -1 before the first."""
    root = _file(folder, pack, 0).parent
    numbers = [int(file.stem) for file in root.iterdir() if file.stem.isdigit()] if root.is_dir() else []
    return max(numbers, default=-1)


def stop_if_superseded(folder: SweepFolder, pack: str, attempt: int) -> None:
    """Raise Superseded where a later attempt has started, and OSError where the claim of this one is gone."""
    if (latest := newest(folder, pack)) < 0:
        raise vanished(folder.path)
    if latest > attempt:
        raise Superseded(f"attempt {latest} at {pack} has started: attempt {attempt} stops here")


def advanced(folder: SweepFolder, manifest: Manifest, pack: Pack) -> bool:
    """Tell whether the latest attempt finished a round, or a trial that is needed once."""
    attempt = newest(folder, pack.id)
    progress = read_progress(folder, manifest)
    rounds = any(progress.finished_attempt(pack, number) == attempt for number in range(len(pack.orders)))
    once = (*progress.other.values(), *progress.seeds.values(), *progress.trainings.values())
    records = [*(found.record for found in once), *(one for own in progress.courses.values() for one in own)]
    return rounds or any(one.pack == pack.id and one.attempt == attempt for one in records)


class AtWork:
    """Notes in a file which of a pack's warm arms works, for the case that memory ends them all.

    A turn is short: the file stays open, so that a note costs no request to a server of files.
    """

    def __init__(self, file: Path | None) -> None:
        self._file, self._handle = file, -1

    def note(self, trial: Path) -> None:
        """Say that this trial, by its folder, works from now on."""
        with suppress(OSError):  # without it all of them are thought to have taken the memory
            if self._handle < 0 and self._file:
                self._handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            if self._handle >= 0:
                os.pwrite(self._handle, f"{_name_of(trial)}\n".encode(), 0)

    def close(self) -> None:
        """Say that none of them works any more."""
        if self._file and self._handle >= 0:
            os.close(self._handle)
            self._file.unlink(missing_ok=True)


def at_work(folder: SweepFolder, pack: str) -> Path:
    """Where `AtWork` notes it."""
    return folder.pack_dir(pack) / "at_work"


def _name_of(trial: Path) -> str:
    return "/".join(trial.parts[-2:])


def record_oom(folder: SweepFolder, pack: Pack) -> bool:
    """Give the trial that ran when memory ended the whole pack its outcome; return whether there was one.

    A memory limit of the job kills the pack's parent too, which would have written it. Of arms that took
    turns it is the one whose turn it was.
    """
    attempt = newest(folder, pack.id)
    running = [
        path
        for arm in pack.arms
        for path, owner, _, number in folder.trial_dirs(arm)
        if owner == pack.id
        and number == attempt
        and (path / "spec.json").exists()
        and not (path / "record.json").exists()
    ]
    with suppress(OSError):
        noted = at_work(folder, pack.id).read_text(errors="replace").partition("\n")[0]
        running = [path for path in running if _name_of(path) == noted] or running
    failure = Failure(
        type=JOB_OOM, message="Slurm ended the job because memory ran out. Ask for more with cluster.memory."
    )
    found = False
    for path in running:
        took_s = max(0.0, time.time() - (path / "spec.json").stat().st_mtime)
        began, spec = time.monotonic() - took_s, read_spec(path / "spec.json")
        found |= write_record(path, TrialRecord.of(spec, began, outcome=Outcome.OOM, failure=failure))
    return found


def _in_records(folder: SweepFolder, pack: Pack) -> list[int]:
    """List the attempts that left trials: older sweep folders, without claims, know them by these."""
    return [number for arm in pack.arms for _, owner, _, number in folder.trial_dirs(arm) if owner == pack.id]


def _file(folder: SweepFolder, pack: str, number: int) -> Path:
    return folder.pack_dir(pack) / "attempts" / f"{number}.json"


_OURS = re.compile(r"^\..+\.(?P<pid>\d+)\.[0-9a-f]{8}\.tmp$")
"""What `perfsweep.pipelines.store.files` writes under."""

_OF_JOBS = re.compile(r"^\..+\.[0-9a-f]{8}\.tmp$|\.save_tmp$")
"""What elements of an array and submitit write under, below `submissions/`."""

_HALF_COPY = re.compile(r"^\..+\.(?P<pid>\d+)$")
"""Snapshots of code before they get their name."""


def remove_leftovers(folder: SweepFolder) -> None:
    """Remove it, as far as it may be; to be called while no job of the sweep is alive elsewhere.

    What a running process of this machine writes stays: a pack outlives a command that was killed.
    """
    for file in _files(folder):
        with suppress(OSError):  # a folder that cannot be written keeps what is in it
            file.unlink()
    for copy in _copies(folder.code_dir):
        shutil.rmtree(copy, ignore_errors=True)
    for trial in folder.path.glob("trials/*/*"):
        if (trial / "scratch").exists() and not _runs(read_pid(trial)):
            _remove_scratch(trial / "scratch")


def _files(folder: SweepFolder) -> Iterator[Path]:
    for place, folders, names in os.walk(folder.path):
        if Path(place) == folder.path:
            folders[:] = [name for name in folders if name != folder.code_dir.name]
        for name in names:
            ours, of_a_job = _OURS.match(name), "submissions" in Path(place).parts and _OF_JOBS.search(name)
            if (ours and not _runs(int(ours["pid"]))) or (of_a_job and not ours):
                yield Path(place, name)


def _copies(code_dir: Path) -> Iterator[Path]:
    for place in code_dir.iterdir() if code_dir.is_dir() else ():
        match = _HALF_COPY.match(place.name)
        if match and not _runs(int(match["pid"])):
            yield place


def _runs(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


def _remove_scratch(place: Path) -> None:
    """Remove a folder, or the link to one on a disk of a node."""
    if place.is_symlink():
        place.unlink(missing_ok=True)
    else:
        shutil.rmtree(place, ignore_errors=True)
