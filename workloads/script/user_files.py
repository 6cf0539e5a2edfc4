"""The user's files are safe: what a script would write below their folder is redirected or refused.

Every trial would overwrite the same checkpoint otherwise. Python tells of what it opens, makes and removes by
audit events; writers in C++ that open files themselves are asked before. A hook can never be taken off again,
so there is one for the process, which does nothing while no script runs.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script.replaced import put
from perfsweep.workloads.script.writes.overlay import Overlay
from perfsweep.workloads.script.writes.redirection import Redirection, native

CACHES = ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "TRITON_CACHE_DIR", "MPLCONFIGDIR")
"""Variables that name folders in which libraries keep what can be made again."""

MOST_NOTED = 50
"""Files, and lines that start programs, that are kept to be told of."""

MOST_NAMED = 4
"""Of these that a sentence names."""

MOST_LOOKED_AT = 20_000
"""Files of a folder among which new ones are looked for."""

SWEEP = "manifest.jsonl"
"""Lies in the folder of every sweep."""

_NOT_THE_CALLER = (sysconfig.get_path("stdlib"), str(Path(__file__).parent))
_HOME_CACHES = (".cache", ".triton", ".config/matplotlib", ".nv")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

Paths = Iterator[tuple[str, Any]]
"""What is done to a path, and the path."""


class WriteRefused(ConfigError, PermissionError):
    """A script would have written where it must not; libraries that can do without treat it as such."""


class UserFiles:
    """Guards folders while a script runs.

    Parameters
    ----------
    folders : below which nothing may be written
    allowed : folders, possibly below those, in which it may
    sources : the script's own files, of which one is named as the culprit

    Attributes
    ----------
    active : whether the script is running now; its other threads always are
    refused : what was refused so far, each once
    written : what was redirected, each path with the line that wrote it first
    programs : lines that started programs, which write where they will
    """

    def __init__(self, folders: Iterable[Path], allowed: Iterable[Path], sources: Iterable[Path]) -> None:
        self.active, self._thread = False, threading.get_ident()
        self.refused: dict[str, None] = {}
        self.written: dict[str, str] = {}
        self.programs: dict[str, None] = {}
        self._redirects, self._begun = False, 0
        guarded = {place: False for folder in folders for place in _spellings(folder)}
        free = {place: True for folder in allowed for place in _spellings(folder)}
        # The folder that is nearest to a file decides: a run's own folder often lies below the script's.
        self._folders = sorted({**guarded, **free}.items(), key=lambda one: len(one[0]), reverse=True)
        self._sources = {str(file) for file in sources}
        self.events = _EVENTS

    def watch(self, undo: ExitStack) -> None:
        """Refuse from here on, whenever the script runs, until `undo`."""
        global _guard
        undo.callback(_set_guard, _guard)
        _guard = self
        _install_hook()
        put(undo, sys, "dont_write_bytecode", True)
        for owner, name, place, writes in native():  # C++ opens what it is given by name without an event
            if writes:
                _ask_before(undo, owner, name, place)

    def redirect(self, root: Path, undo: ExitStack) -> None:
        """Have what would be refused written below `root`, from here on until `undo`."""
        self._redirects, self._begun = True, time.time_ns()
        self.events = {
            name: paths for name, paths in _EVENTS.items() if name != "shutil.rmtree"
        }  # file by file
        overlay = Overlay(root, self.is_free)
        Redirection(overlay, self._is_watching, self._note_file, self._note_program).install(undo)

    @property
    def watches(self) -> bool:
        """Whether who calls this is the script: a thread of its own writes while the trial works, too."""
        return self.active or threading.get_ident() != self._thread

    def _is_watching(self) -> bool:
        return self.watches and _guard is self

    def _note_file(self, name: str) -> None:
        if len(self.written) < MOST_NOTED and name not in self.written:
            self.written[name] = self.line(sys._getframe(1))

    def told(self) -> list[str]:
        """What became of what the script wrote, a sentence each, for the user."""
        return [*self.refused, *self._told_written(), *self._told_programs(), *self._told_past()]

    def _told_written(self) -> Iterator[str]:
        places = [f"{self._short(name)} ({line.rpartition('/')[2]})" for name, line in self.written.items()]
        if places:
            yield f"{_first(places)}: into a folder of the trial's own, which goes with it"

    def _told_programs(self) -> Iterator[str]:
        if self.programs:
            yield f"{_first([*self.programs])}: what a program writes is not redirected"

    def _told_past(self) -> Iterator[str]:
        """Find what is in the user's folders all the same: written by code that Python does not see."""
        found = [self._short(name) for name in self._newer()] if self._redirects else []
        if found:
            yield f"{_first(found)}: into the script's own folder, by native code or another program"

    def _newer(self) -> Iterator[str]:
        """Files below the guarded folders that were changed since the script began."""
        for top in [folder for folder, free in self._folders if not free]:
            looked = 0
            for place, folders, files in os.walk(top):
                if SWEEP in files:  # another command measures meanwhile
                    folders[:], files = [], []
                folders[:] = [name for name in folders if not self.is_free(f"{place}/{name}")]
                looked += len(files)
                if looked > MOST_LOOKED_AT:
                    break
                yield from (
                    f"{place}/{name}" for name in files if _changed_at(f"{place}/{name}") > self._begun
                )

    def _short(self, name: str) -> str:
        tops = [folder for folder, free in self._folders if not free and name.startswith(f"{folder}/")]
        return name[len(tops[0]) + 1 :] if tops else name

    def _note_program(self, words: Any) -> None:
        """Keep the line that starts a program, where the script does so and no library."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THE_CALLER):
            frame = frame.f_back
        if frame.f_code.co_filename in self._sources and len(self.programs) < MOST_NOTED:
            shown = words if isinstance(words, str) else " ".join(map(str, words))
            self.programs.setdefault(f"{self.line(frame)} starts {shown[:60]}")

    def refuse(self, verb: str, path: Any) -> None:
        """Refuse to do something to a path, if it lies where nothing may be written.

        Raises
        ------
        WriteRefused
            It does; the message names the path, the line in the script, and the remedy.
        """
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - a Path would cost as much again
        if self.is_free(name) and self.is_free(os.path.realpath(name)):
            return
        where = self.line(sys._getframe(1))
        how = " in a way that cannot be redirected" if self._redirects else ""
        message = (
            f"{where} wants to {verb} {name}{how}: every trial would, and what lies there is yours. Point it"
            " at a folder of the trial's own, {scratch} in its arguments (such as --out_dir={scratch}), or"
            " allow it with workload.writes=allow"
        )
        self.refused.setdefault(message)
        raise WriteRefused(message)

    def is_free(self, name: str) -> bool:
        """Whether an absolute path may be written where it is, by its spelling."""
        inside = (free for folder, free in self._folders if name == folder or name.startswith(f"{folder}/"))
        return next(inside, True)

    def line(self, frame: FrameType | None) -> str:
        """The innermost line of the script's own files."""
        while frame is not None:
            if frame.f_code.co_filename in self._sources:
                return f"{frame.f_code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return "the script"


def cache_folders() -> list[Path]:
    """Folders that libraries and the system keep temporary things in."""
    named = [Path(os.environ[name]) for name in CACHES if os.environ.get(name)]
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - a Path raises where there is no home
    return [
        Path(tempfile.gettempdir()),
        Path("/dev"),
        Path("/proc"),
        *named,
        *(home / one for one in _HOME_CACHES),
    ]


def _first(parts: Sequence[str]) -> str:
    """The first of several, and how many more there are."""
    more = f" and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else ""
    return ", ".join(parts[:MOST_NAMED]) + more


def _changed_at(name: str) -> int:
    """When a file was changed, in nanoseconds; 0 where it has gone."""
    try:
        return os.lstat(name).st_mtime_ns
    except OSError:
        return 0


def _spellings(folder: Path) -> set[str]:
    """A folder as it is named, and as it really lies."""
    return {str(folder.absolute()).rstrip("/"), str(folder.resolve()).rstrip("/")}


_guard: UserFiles | None = None
_hooked = False


def _set_guard(guard: UserFiles | None) -> None:
    global _guard
    _guard = guard


def _install_hook() -> None:
    global _hooked
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked = True


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    guard = _guard
    if guard is not None and event in guard.events and guard.watches:
        for verb, path in _EVENTS[event](*arguments):
            guard.refuse(verb, path)


def _opened(path: Any, mode: Any = None, flags: Any = 0, *rest: Any) -> Paths:
    if not isinstance(path, int) and isinstance(flags, int) and flags & _WRITING:
        yield "write", path


def _made(path: Any, mode: int = 0, dir_fd: int = -1) -> Paths:
    place = _placed(path, dir_fd)
    if not os.path.lexists(place):  # Python asks for folders that are there, to find that they are
        yield "make the folder", place


def _removed(path: Any, dir_fd: int | None = -1) -> Paths:
    place = _placed(path, dir_fd)
    if os.path.lexists(place):
        yield "remove", place


def _renamed(old: Any, new: Any, old_fd: int = -1, new_fd: int = -1) -> Paths:
    yield "rename", _placed(old, old_fd)
    yield "write", _placed(new, new_fd)


def _linked(old: Any, new: Any, *descriptors: int) -> Paths:
    yield "make a link at", _placed(new, descriptors[-1] if descriptors else -1)


def _changed(path: Any, *rest: Any) -> Paths:
    if not isinstance(path, int):
        yield "change", path


def _connected(database: Any, *rest: Any) -> Paths:
    name = os.fsdecode(database)
    if name and not name.startswith((":memory:", "file:")) and not Path(name).exists():
        yield "write", name


def _placed(path: Any, dir_fd: int | None) -> str:
    """A path that may be relative to an open folder."""
    name = os.fsdecode(path)
    known = dir_fd is not None and dir_fd >= 0
    return os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name) if known else name  # noqa: PTH115, PTH118


_EVENTS: dict[str, Callable[..., Paths]] = {
    "open": _opened,
    "os.mkdir": _made,
    "os.remove": _removed,
    "os.rmdir": _removed,
    "shutil.rmtree": _removed,
    "os.rename": _renamed,
    "os.link": _linked,
    "os.symlink": _linked,
    "os.truncate": _changed,
    "os.chmod": _changed,
    "os.utime": _changed,
    "sqlite3.connect": _connected,
}
"""Audit events by which Python tells of writing, each with what it does to which paths."""


def _ask_before(undo: ExitStack, owner: Any, name: str, place: int) -> None:
    """Look at the argument of a function that names the file it will write."""
    writing = getattr(owner, name)

    def asked(*args: Any, **kwargs: Any) -> Any:
        given = args[place : place + 1] or kwargs.values()
        target = next((one for one in given if isinstance(one, str | os.PathLike)), None)
        if _guard is not None and target is not None and _guard.watches:
            _guard.refuse("write", target)
        return writing(*args, **kwargs)

    put(undo, owner, name, asked)
