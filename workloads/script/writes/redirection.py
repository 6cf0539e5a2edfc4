"""Functions that open, make, list and remove files, changed so that they find an overlay.

Python's own are replaced by name in `os`, `io` and a few modules that took them earlier; writers and readers
in C++ that open files by name are given another name. What gets around all these meets the audit hook of
`perfsweep.workloads.script.user_files`, which refuses it.
"""

from __future__ import annotations

import builtins
import errno
import functools
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.jit._script import RecursiveScriptModule

from perfsweep.workloads.script.replaced import put
from perfsweep.workloads.script.writes.overlay import Overlay

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MOST_ARGUMENTS = 5
"""Of `open` by position after the mode, without an opener."""
LARGEST_DATABASE = 256 << 20
"""Bytes of a database that is copied when it is connected to; a larger one is taken to be data."""


class Redirection:
    """Redirects while `is_active` says so, from `install` to `undo`.

    Parameters
    ----------
    wrote : told of each path that is written into the overlay
    started : told of each program that is started, which writes where it will
    """

    def __init__(
        self,
        overlay: Overlay,
        is_active: Callable[[], bool],
        wrote: Callable[[str], None],
        started: Callable[[Any], None],
    ) -> None:
        self._overlay, self._is_active, self._wrote, self._started = overlay, is_active, wrote, started
        self._within = threading.local()

    def install(self, undo: ExitStack) -> None:
        """Put all that redirects in its place."""
        changed = {
            getattr(os, name): self._around(getattr(os, name), ours) for name, ours in self._of_os().items()
        }
        changed[builtins.open] = self._around(builtins.open, self._open)
        changed[sqlite3.connect] = self._around(sqlite3.connect, self._connect)
        _replace_everywhere(undo, changed)
        put(undo, subprocess.Popen, "__init__", self._around(subprocess.Popen.__init__, self._popen))
        for owner, name, place, writes in native():
            named = functools.partial(self._named, place=place, writes=writes)
            put(undo, owner, name, self._around(getattr(owner, name), named))

    def _around(self, real: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
        """Call `ours`, with `real` first, where a script calls; never from inside itself."""
        within, is_active = self._within, self._is_active

        @functools.wraps(real)
        def called(*args: Any, **kwargs: Any) -> Any:
            if not is_active() or getattr(within, "busy", False):
                return real(*args, **kwargs)
            return ours(real, *args, **kwargs)

        return called

    def _alone(self) -> _Alone:
        """Let what is called inside pass."""
        return _Alone(self._within, self._overlay)

    def _of_os(self) -> dict[str, Callable[..., Any]]:
        reading = dict.fromkeys(("stat", "access", "chdir", "getxattr", "listxattr"), self._read)
        changing = dict.fromkeys(("truncate", "chmod", "chown", "utime", "setxattr"), self._change)
        removing = dict.fromkeys(("remove", "unlink", "rmdir"), self._remove)
        return {
            **{name: one for name, one in {**reading, **changing, **removing}.items() if hasattr(os, name)},
            "lstat": self._read_link,
            "readlink": self._readlink,
            "listdir": self._listdir,
            "scandir": self._scandir,
            "getcwd": lambda real: self._overlay.path_of(real()),
            "open": self._os_open,
            "mkdir": self._mkdir,
            "rename": self._rename,
            "replace": self._rename,
            "link": self._link,
            "symlink": self._symlink,
            "system": self._system,
        }

    def _absolute(self, path: Any, dir_fd: int | None = None) -> str:
        name = os.fsdecode(path)
        if dir_fd is not None and dir_fd >= 0:
            name = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name)
        return self._overlay.path_of(os.path.abspath(name))

    def _read(self, real: Callable[..., Any], path: Any, *args: Any, **kwargs: Any) -> Any:
        there = self._source(path, kwargs.get("follow_symlinks", True), kwargs.get("dir_fd"))
        return real(path, *args, **kwargs) if there is None else real(there, *args, **_without_fd(kwargs))

    def _source(self, path: Any, follow: bool = True, dir_fd: int | None = None) -> str | None:
        """Where a path is read; None where that is as it is."""
        if isinstance(path, int) or not self._overlay.is_used:
            return None
        with self._alone() as overlay:
            name = self._absolute(path, dir_fd)
            there = overlay.reading(name, follow)
            return None if there == name and not overlay.holds(os.getcwd()) else there

    def _read_link(self, real: Callable[..., Any], path: Any, **kwargs: Any) -> Any:
        with self._alone() as overlay:
            return real(overlay.reading(self._absolute(path, kwargs.get("dir_fd")), follow=False))

    def _readlink(self, real: Callable[..., Any], path: Any, **kwargs: Any) -> Any:
        target = self._read_link(real, path, **kwargs)
        return (
            os.fsencode(self._overlay.path_of(os.fsdecode(target)))
            if isinstance(path, bytes)
            else (self._overlay.path_of(target))
        )

    def _target(self, path: Any, keeps: bool, follow: bool = True, dir_fd: int | None = None) -> str | None:
        """Where a path is written instead; None where it is written as it is."""
        with self._alone() as overlay:
            name = self._absolute(path, dir_fd)
            if not overlay.redirects(name):
                return None
            there = overlay.writing(name, keeps, follow)
            self._wrote(name)
            return there

    def _open(
        self,
        real: Callable[..., Any],
        file: Any,
        mode: str = "r",
        *args: Any,
        opener: Callable[..., int] | None = None,
        **kwargs: Any,
    ) -> Any:
        if isinstance(file, int) or len(args) > MOST_ARGUMENTS:
            return real(file, mode, *args, opener=opener, **kwargs)
        there: str | int | None
        if opener is not None:  # which opens what it wants to, while Python tells that `file` is opened
            there = opener(file, _flags(mode))
            os.set_inheritable(there, False)
        elif set("wax+") & set(mode):
            if "x" in mode:
                self._refuse_existing(file)
            there = self._target(file, keeps="w" not in mode)
        else:
            there = self._source(file)
        if there is None:
            return real(file, mode, *args, **kwargs)
        opened = real(there, mode, *args, **kwargs)
        raw = getattr(opened, "buffer", opened)
        getattr(raw, "raw", raw).name = file  # as who opened it expects
        return opened

    def _os_open(
        self, real: Callable[..., Any], path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        if not flags & _WRITING or flags & getattr(os, "O_TMPFILE", 0) == getattr(os, "O_TMPFILE", -1):
            return self._read(real, path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_EXCL:
            self._refuse_existing(path, dir_fd)
        there = self._target(path, not flags & os.O_TRUNC, dir_fd=dir_fd)
        return real(path, flags, mode, dir_fd=dir_fd) if there is None else real(there, flags, mode)

    def _refuse_existing(self, path: Any, dir_fd: int | None = None) -> None:
        with self._alone() as overlay:
            if overlay.exists(self._absolute(path, dir_fd)):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    def _change(self, real: Callable[..., Any], path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, int):
            return real(path, *args, **kwargs)
        there = self._target(path, True, kwargs.get("follow_symlinks", True), kwargs.get("dir_fd"))
        return real(path, *args, **kwargs) if there is None else real(there, *args, **_without_fd(kwargs))

    def _mkdir(
        self, real: Callable[..., Any], path: Any, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> None:
        with self._alone() as overlay:
            name = self._absolute(path, dir_fd)
            if not overlay.redirects(name):
                return real(path, mode, dir_fd=dir_fd)
        self._refuse_existing(path, dir_fd)
        with self._alone() as overlay:
            real(overlay.make_parent(name), mode)
            self._wrote(name)
            return None

    def _remove(self, real: Callable[..., Any], path: Any, *, dir_fd: int | None = None) -> None:
        with self._alone() as overlay:
            name = self._absolute(path, dir_fd)
            if not overlay.redirects(name):
                return real(path, dir_fd=dir_fd)
            there = overlay.reading(name, follow=False)
            is_folder = os.path.isdir(there) and not os.path.islink(there)
            if (
                real.__name__ == "rmdir"
                and is_folder
                and (overlay.names(name) or _names(overlay, name, there))
            ):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            wrong = not os.path.lexists(there) or is_folder != (real.__name__ == "rmdir")
            if wrong or there != name:
                real(there)  # which raises what is to be raised
            overlay.remove(name)
            return None

    def _rename(
        self,
        real: Callable[..., Any],
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
    ) -> None:
        with self._alone() as overlay:
            old, new = self._absolute(src, src_dir_fd), self._absolute(dst, dst_dir_fd)
            if not overlay.redirects(old) and not overlay.redirects(new):
                return real(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            before = overlay.reading(new, follow=False)
            if os.path.isdir(before) and not os.path.islink(before) and _names(overlay, new, before):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), src, None, dst)
            if not overlay.exists(old):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), src, None, dst)
            source = overlay.writing(old, follow=False) if overlay.redirects(old) else old
            target = overlay.make_parent(new) if overlay.redirects(new) else new
            _moved(real, source, target)
            for name in (old, new):
                if overlay.redirects(name):
                    overlay.remove(name)
            self._wrote(new)
            return None

    def _link(self, real: Callable[..., Any], src: Any, dst: Any, **kwargs: Any) -> None:
        target = self._target_of_link(dst, kwargs.get("dst_dir_fd"))
        if target is None:
            return real(src, dst, **kwargs)
        with self._alone() as overlay:  # a copy: what is written through one name must not reach the user's
            shutil.copy2(overlay.reading(self._absolute(src, kwargs.get("src_dir_fd"))), target)
            return None

    def _symlink(self, real: Callable[..., Any], src: Any, dst: Any, *args: Any, **kwargs: Any) -> None:
        target = self._target_of_link(dst, kwargs.get("dir_fd"))
        if target is None:
            return real(src, dst, *args, **kwargs)
        with self._alone() as overlay:
            real(src, target)
            overlay.forget_links()
            return None

    def _target_of_link(self, path: Any, dir_fd: int | None) -> str | None:
        with self._alone() as overlay:
            name = self._absolute(path, dir_fd)
            if not overlay.redirects(name):
                return None
        self._refuse_existing(path, dir_fd)
        with self._alone() as overlay:
            self._wrote(name)
            return overlay.make_parent(name)

    def _listdir(self, real: Callable[..., Any], path: Any = ".") -> list[Any]:
        names = self._merged(path)
        if names is None:
            return real(path)
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def _merged(self, path: Any) -> list[str] | None:
        with self._alone() as overlay:
            return overlay.names(self._folder(path)) if overlay.is_used else None

    def _folder(self, path: Any) -> str:
        return self._absolute("", path) if isinstance(path, int) else self._absolute(path)

    def _scandir(self, real: Callable[..., Any], path: Any = ".") -> Any:
        names = self._merged(path)
        if names is None:
            return real(path)
        with self._alone() as overlay:
            folder = self._folder(path)
            shown = "" if isinstance(path, int) else os.fspath(path)
            return _Entries(
                _Entry(os.path.join(folder, name), overlay.reading(os.path.join(folder, name), False), shown)
                for name in names
            )

    def _connect(self, real: Callable[..., Any], database: Any, *args: Any, **kwargs: Any) -> Any:
        name = os.fsdecode(database)
        known = not name or name.startswith((":memory:", "file:"))
        with self._alone():
            is_data = not known and os.path.exists(name) and os.path.getsize(name) > LARGEST_DATABASE
        there = None if known or is_data else self._target(name, keeps=True)
        return real(database if there is None else there, *args, **kwargs)

    def _popen(self, real: Callable[..., Any], popen: Any, args: Any, *rest: Any, **kwargs: Any) -> None:
        """Start a program, with the names of files that the script has written where they lie."""
        self._started(args)
        if isinstance(args, list | tuple):
            args = [self._word(word) for word in args]
        if kwargs.get("cwd") is not None:
            kwargs["cwd"] = self._word(kwargs["cwd"])
        real(popen, args, *rest, **kwargs)

    def _system(self, real: Callable[..., Any], command: Any) -> int:
        self._started(command)
        return real(command)

    def _word(self, word: Any) -> Any:
        there = self._source(word) if isinstance(word, str | os.PathLike) else None
        return word if there is None or not os.path.lexists(there) else there

    def _named(self, real: Callable[..., Any], *args: Any, place: int, writes: bool, **kwargs: Any) -> Any:
        """Call what opens a file by the name that is its argument at `place`, or one of those by name."""
        given = [*args]
        at = (
            [place]
            if len(args) > place
            else [name for name in kwargs if isinstance(kwargs[name], str | Path)]
        )
        values: Any = given if len(args) > place else kwargs
        for one in at[:1]:
            if isinstance(values[one], str | os.PathLike):
                values[one] = self._name(values[one], writes)
        return real(*given, **kwargs)

    def _name(self, path: Any, writes: bool) -> Any:
        if writes:
            there = self._target(path, keeps=False)
            return path if there is None else there
        return self._word(path)


class _Alone:
    """Marks a thread as busy with a redirection; a class, since it is entered at every file that is read."""

    def __init__(self, within: threading.local, overlay: Overlay) -> None:
        self._within, self._overlay = within, overlay

    def __enter__(self) -> Overlay:
        self._before = getattr(self._within, "busy", False)
        self._within.busy = True
        return self._overlay

    def __exit__(self, *about: object) -> None:
        self._within.busy = self._before


class _Entry:
    """What `os.scandir` gives of a file of an overlay."""

    def __init__(self, whole: str, there: str, folder: Any) -> None:
        name = os.path.basename(whole)
        self.name: Any = os.fsencode(name) if isinstance(folder, bytes) else name
        self.path: Any = os.path.join(folder, self.name) if folder else self.name
        self._whole, self._there = whole, there

    def __fspath__(self) -> Any:
        return self.path

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isdir(self._whole) and (follow_symlinks or not self.is_symlink())

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isfile(self._whole) and (follow_symlinks or not self.is_symlink())

    def is_symlink(self) -> bool:
        return os.path.islink(self._there)

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self._whole if follow_symlinks else self._there, follow_symlinks=follow_symlinks)


class _Entries:
    """An iterator that can be closed, as `os.scandir` gives it."""

    def __init__(self, entries: Iterator[_Entry]) -> None:
        self._entries = iter([*entries])

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> _Entry:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def _names(overlay: Overlay, name: str, there: str) -> list[str]:
    names = overlay.names(name)
    return os.listdir(there) if names is None else names


def _moved(real: Callable[..., Any], source: str, target: str) -> None:
    try:
        real(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(source, target)  # the trial's folder may lie on another disk


def _without_fd(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name != "dir_fd"}


def native() -> Iterator[tuple[Any, str, int, bool]]:
    """Functions in C++ and Rust that open a file: owner, name, place of the file's name, if they write."""
    yield torch._C.PyTorchFileWriter, "__init__", 1, True
    for compiled in (RecursiveScriptModule, torch.jit.ScriptFunction):
        yield compiled, "save", 1, True  # which torch.jit.save calls
    yield torch._C, "import_ir_module", 1, False
    yield torch._C.PyTorchFileReader, "__init__", 1, False
    yield torch.UntypedStorage, "from_file", 0, False
    if find_spec("safetensors"):
        import safetensors
        import safetensors.numpy
        import safetensors.torch

        for module in (safetensors.numpy, safetensors.torch):
            yield module, "serialize_file", 1, True
        for module in (safetensors, safetensors.numpy, safetensors.torch):
            yield module, "safe_open", 0, False


def _replace_everywhere(undo: ExitStack, changed: dict[Any, Any]) -> None:
    """Put functions in the place of others wherever they are, as by ``from os import remove``."""
    by_id = {id(real): ours for real, ours in changed.items()}
    for module in [*sys.modules.values()]:
        name = getattr(module, "__name__", "")
        if name in _IMPORTING or name.startswith(__name__.rpartition(".")[0]):
            continue
        for own, value in [*getattr(module, "__dict__", {}).items()]:
            if id(value) in by_id:
                put(undo, module, own, by_id[id(value)])
    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        new = {ours for real, ours in changed.items() if real in able}
        able.update(new)
        undo.callback(able.difference_update, new)
    _replace_defaults(undo, vars(tempfile._TemporaryFileCloser), by_id)  # type: ignore[attr-defined]


def _replace_defaults(undo: ExitStack, functions: Mapping[str, Any], by_id: Mapping[int, Any]) -> None:
    for function in functions.values():
        if defaults := getattr(function, "__defaults__", None):
            put(undo, function, "__defaults__", tuple(by_id.get(id(one), one) for one in defaults))


_IMPORTING = ("posix", "_frozen_importlib_external", "_frozen_importlib")
"""Modules that import with their own functions, and that all others are from."""


def _flags(mode: str) -> int:
    """What `open` gives an opener."""
    kinds = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL, "a": os.O_CREAT | os.O_APPEND}
    kind = next(kind for kind in kinds if kind in mode)
    access = os.O_RDWR if "+" in mode else os.O_RDONLY if kind == "r" else os.O_WRONLY
    return kinds[kind] | access | os.O_CLOEXEC
