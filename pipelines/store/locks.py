"""Locks between processes: of the file system, or where it has none, files that name who holds them."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.workloads.errors import ConfigError

_NO_LOCKS = frozenset((errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP))
"""What flock says on file systems without locks, such as Lustre mounted without them."""


@contextmanager
def locked(folder: SweepFolder) -> Iterator[None]:
    """Keep a second command from measuring the same sweep at the same time.

    Raises
    ------
    ConfigError
        Another command holds the sweep, or the folder cannot be written.
    """
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        (folder.path / ".lock").touch()
    except OSError as error:
        raise cannot_write(folder, error) from error
    with holding(folder.path / ".lock") as other:
        if other:
            problem = f"{folder.path} is being measured by another command"
            raise ConfigError(f"{problem}; wait for it, or give this one a name={other}")
        yield


def cannot_write(folder: SweepFolder, error: OSError) -> ConfigError:
    """Say that nothing can be written where a sweep is to lie."""
    problem = f"runs={folder.path.parent}: cannot write {folder.path} ({error.strerror})"
    return ConfigError(f"{problem}; choose another with runs=PATH")


OTHER = " "
"""Who has a lock, where the file system does not say."""


@contextmanager
def holding(file: Path) -> Iterator[str]:
    """Hold the lock of a file; yields "" where it is ours, else what is to be said of who has it."""
    with file.open("a") as lock:  # what stands in it stays
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield OTHER
            return
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            with _owning(file.with_name(f"{file.stem}.owner")) as other:
                yield other
            return
        yield ""


@contextmanager
def _owning(file: Path) -> Iterator[str]:
    """Hold a file that names us; one that a dead process of this machine left is replaced."""
    if not _create(file) and (_lives(owner := _owner(file)) or not _replace(file)):
        who = f"process {owner.get('pid', '?')} on {owner.get('host', '?')}"
        yield f" ({who}; this file system has no locks: where it has died, delete {file})"
        return
    try:
        yield ""
    finally:
        file.unlink(missing_ok=True)


def _replace(file: Path) -> bool:
    file.unlink(missing_ok=True)
    return _create(file)


def _create(file: Path) -> bool:
    """Create a file that names us in one step; False where it is there already."""
    try:
        handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    ours = {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}
    with os.fdopen(handle, "w") as out:
        out.write(json.dumps(ours))
    return True


def _owner(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}  # it is being written, or has just been given back
    return values if isinstance(values, dict) else {}


def _lives(owner: dict[str, Any]) -> bool:
    """Whether a process may be alive: of those on other machines nothing is known."""
    return owner.get("host") != socket.gethostname() or owner.get("started") == _started(owner.get("pid"))


def _started(pid: Any) -> str | None:
    """When a process of this machine started, in ticks since it booted; None where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
