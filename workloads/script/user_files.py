"""The user's files are safe: what a script would write below their folder is refused, by file and line.

Every trial would overwrite the same checkpoint otherwise. Python tells of what it opens, makes and removes by
audit events; writers in C++ that open files themselves are asked before. A hook can never be taken off again,
so there is one for the process, which does nothing while no script runs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.jit._script import RecursiveScriptModule

from perfsweep.workloads.errors import ConfigError

CACHES = ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "TRITON_CACHE_DIR", "MPLCONFIGDIR")
"""Variables that name folders in which libraries keep what can be made anew."""

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
    active : whether the script is running now
    refused : what was refused so far, each once
    """

    def __init__(self, folders: Iterable[Path], allowed: Iterable[Path], sources: Iterable[Path]) -> None:
        self.active = False
        self.refused: dict[str, None] = {}
        guarded = {place: False for folder in folders for place in _spellings(folder)}
        free = {place: True for folder in allowed for place in _spellings(folder)}
        # The folder that is nearest to a file decides: a run's own folder often lies below the script's.
        self._folders = sorted({**guarded, **free}.items(), key=lambda one: len(one[0]), reverse=True)
        self._sources = {str(file) for file in sources}

    def watch(self, undo: ExitStack) -> None:
        """Refuse from here on, whenever `active`, until `undo`."""
        global _guard
        undo.callback(_set_guard, _guard)
        _guard = self
        _install_hook()
        undo.callback(setattr, sys, "dont_write_bytecode", sys.dont_write_bytecode)
        sys.dont_write_bytecode = True
        _watch_native(undo)

    def refuse(self, verb: str, path: Any) -> None:
        """Refuse to do something to a path, if it lies where nothing may be written.

        Raises
        ------
        WriteRefused
            It does; the message names the path, the line in the script, and the remedy.
        """
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - a Path would cost as much again
        if self._is_free(name) and self._is_free(os.path.realpath(name)):
            return
        where = self._line(sys._getframe(1))
        message = (
            f"{where} wants to {verb} {name}: every trial would, and what lies there is yours. Point it at a"
            " folder of the trial's own, {scratch} in its arguments (such as --out_dir={scratch}), or"
            " allow it with workload.writes=allow, for `perfsweep script` --writes=allow"
        )
        self.refused.setdefault(message)
        raise WriteRefused(message)

    def _is_free(self, name: str) -> bool:
        inside = (free for folder, free in self._folders if name == folder or name.startswith(f"{folder}/"))
        return next(inside, True)

    def _line(self, frame: FrameType | None) -> str:
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
    if guard is not None and guard.active and event in _EVENTS:
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


def _watch_native(undo: ExitStack) -> None:
    """Ask before writers in C++ open what they are given by name."""
    _ask_before(undo, torch._C.PyTorchFileWriter, "__init__", place=1)
    for compiled in (RecursiveScriptModule, torch.jit.ScriptFunction):
        _ask_before(undo, compiled, "save", place=1)  # which torch.jit.save calls
    if find_spec("safetensors"):
        import safetensors.numpy
        import safetensors.torch

        for module in (safetensors.numpy, safetensors.torch):
            _ask_before(undo, module, "serialize_file", place=1)


def _ask_before(undo: ExitStack, owner: Any, name: str, place: int) -> None:
    """Look at the argument of a function that names the file it will write."""
    writing = getattr(owner, name)

    def asked(*args: Any, **kwargs: Any) -> Any:
        given = args[place : place + 1] or kwargs.values()
        target = next((one for one in given if isinstance(one, str | os.PathLike)), None)
        if _guard is not None and _guard.active and target is not None:
            _guard.refuse("write", target)
        return writing(*args, **kwargs)

    undo.callback(setattr, owner, name, writing)
    setattr(owner, name, asked)
