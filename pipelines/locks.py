"""Locks that end with the process that holds them, and folders that go with the process that made them."""

from __future__ import annotations

import atexit
import errno
import fcntl
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

_NO_LOCKS = frozenset((errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP))
"""What flock says on file systems without locks, such as Lustre mounted without them."""

_ALIVE = "alive"
"""The lock in a folder of a process."""

OTHER = " "
"""Who has a lock, where the file system does not say."""


@contextmanager
def holding(file: Path) -> Iterator[str]:
    """Hold the lock of a file; yields "" where it is ours, else what is to be said of who has it."""
    with file.open("a") as lock:  # keeps its content
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
        yield f" ({_named(owner)}; this file system has no locks: where it has died, delete {file})"
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
        with file.open("x") as out:
            out.write(our_name())
    except FileExistsError:
        return False
    return True


def our_name() -> str:
    """Name this process, for the file of a lock."""
    ours = {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}
    return json.dumps(ours)


def _named(owner: dict[str, Any]) -> str:
    return f"process {owner.get('pid', '?')} on {owner.get('host', '?')}"


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
    fields = _state(pid)
    return fields[19] if len(fields) > 19 else None


def _state(pid: Any) -> list[str]:
    """What the kernel says of a process of this machine, from its state on; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def holder(file: Path) -> str:
    """Who has a lock by what it wrote into the file, and that it keeps it where something has stopped it."""
    owner = _owner(file)
    if not owner or not _lives(owner):
        return ""  # it has not written its name yet
    here = owner.get("host") == socket.gethostname()
    stopped = here and _state(owner.get("pid"))[:1] == ["T"]
    on = f", which is stopped: `kill -CONT {owner['pid']}` lets it go on" if stopped else ""
    return f" ({_named(owner)}{on})"


@contextmanager
def own_folder(place: Path, prefix: str) -> Iterator[Path]:
    """A folder below `place` that goes with this process; those of processes that were killed go first."""
    place.mkdir(parents=True, exist_ok=True)
    remove_left(place, prefix)
    with ExitStack() as ends:
        yield _made(place, prefix, ends)


def _made(place: Path, prefix: str, ends: ExitStack) -> Path:
    """Make a folder with a lock in it; again where another process took it for one that was left."""
    while True:
        own = tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True)
        taken = Path(ends.enter_context(own)) / f"{_ALIVE}.tmp"
        with suppress(FileNotFoundError):
            if not ends.enter_context(holding(taken)):
                taken.replace(taken.with_suffix(""))  # no process sees the name before the lock is held
                return taken.parent


def remove_left(place: Path, prefix: str) -> None:
    """Remove our folders whose lock no process holds, or that have none: their makers make others."""
    for left in place.glob(f"{prefix}*"):
        with suppress(OSError):
            if left.lstat().st_uid == os.getuid():
                _remove(left)


def _remove(left: Path) -> None:
    locks = [left / name for name in (_ALIVE, f"{_ALIVE}.tmp")]
    lock = next(filter(Path.exists, locks), None)
    if lock is None:
        left.rmdir()
        return
    with holding(lock) as other:
        if not other:
            shutil.rmtree(left, ignore_errors=True)


_READ = "perfsweep-read-"


def folder_to_read_in() -> Path:
    """A folder for temporary files, removed when this process ends."""
    ends = ExitStack()
    atexit.register(ends.close)
    return ends.enter_context(own_folder(Path(tempfile.gettempdir()), _READ))


def remove_read() -> None:
    """Remove what processes that were killed left in the folder for temporary files."""
    remove_left(Path(tempfile.gettempdir()), _READ)
