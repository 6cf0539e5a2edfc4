"""A copy of folders that holds only what was written: reads see it first, the folders below it stay whole.

It is what overlayfs is, in terms of paths: each file of the copy lies under its real path within `root`, what
was removed is remembered by name, and a file that is changed in place is copied before.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

MOST_LINKS = 40
"""Links of links that are followed, as many as Linux follows."""


_access, _lstat, _readlink = os.access, os.lstat, os.readlink  # as they are without a redirection


def _is_there(path: str) -> bool:
    return _access(path, os.F_OK, follow_symlinks=False)  # nothing is raised, which would cost more


class Overlay:
    """Says where a path is read and written.

    Parameters
    ----------
    root : folder of what is written, made with the first write; free itself
    is_free : whether a path may be written where it is
    """

    def __init__(self, root: Path, is_free: Callable[[str], bool]) -> None:
        self.root = os.path.realpath(root)
        self._is_free = is_free
        self._removed: set[str] = set()
        self._real_folders: dict[str, str] = {}

    @property
    def is_used(self) -> bool:
        """Whether anything was written or removed, by this process or another one of its trial."""
        return bool(self._removed) or _is_there(self.root)

    def path_of(self, path: str) -> str:
        """The path that a script knows something of the copy by."""
        return (path[len(self.root) :] or "/") if self.holds(path) else path

    def holds(self, path: str) -> bool:
        """Whether an absolute path is one of the copy itself."""
        return path == self.root or path.startswith(f"{self.root}/")

    def redirects(self, path: str) -> bool:
        """Whether an absolute path is written into the copy."""
        return not (self._is_free(path) and self._is_free(self._key(path, follow=True)))

    def reading(self, path: str, follow: bool = True) -> str:
        """Where an absolute path is read."""
        key = self._key(path, follow)
        copy = self._copy(key)
        return copy if _is_there(copy) or self._is_gone(key) else key

    def writing(self, path: str, keeps: bool = True, follow: bool = True) -> str:
        """Where an absolute path is written; with its content so far if the writer `keeps` it.

        Raises
        ------
        FileNotFoundError
            There is no such folder.
        """
        key = self._key(path, follow)
        copy = self._copy(key)
        self.make_parent(path, key)
        if keeps and not _is_there(copy) and self._is_below(key):
            self._copy_up(key, copy)
        return copy

    def make_parent(self, path: str, key: str | None = None) -> str:
        """Have the folder of a path in the copy; where the path itself lies in it.

        Raises
        ------
        FileNotFoundError
            There is none among the user's folders either.
        """
        key = self._key(path, follow=False) if key is None else key
        if not self.exists(os.path.dirname(key)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        os.makedirs(os.path.dirname(self._copy(key)), exist_ok=True)
        return self._copy(key)

    def exists(self, path: str) -> bool:
        """Whether an absolute path is there, in the copy or below it."""
        key = self._key(path, follow=False)
        return _is_there(self._copy(key)) or self._is_below(key)

    def remove(self, path: str) -> None:
        """Hide what lies below the copy at a path that has gone from the copy."""
        key = self._key(path, follow=False)
        if _is_there(key):
            self._removed.add(key)
        self._real_folders.clear()

    def names(self, path: str) -> list[str] | None:
        """Names in a folder; None where the copy has nothing of it.

        Raises
        ------
        OSError
            It is no folder.
        """
        key = self._key(path, follow=True)
        copy = self._copy(key)
        if not _is_there(copy) and not any(os.path.dirname(one) == key for one in self._removed):
            return None
        above = os.listdir(copy) if _is_there(copy) else []
        below = os.listdir(key) if self._is_below(key) else []
        return [*above, *(n for n in below if n not in set(above) and self._is_below(os.path.join(key, n)))]

    def _copy(self, key: str) -> str:
        return f"{self.root}{key}"

    def _is_gone(self, key: str) -> bool:
        """Whether what lies below the copy was removed, or a folder around it."""
        while self._removed and key != "/":
            if key in self._removed:
                return True
            key = os.path.dirname(key)
        return False

    def _is_below(self, key: str) -> bool:
        return _is_there(key) and not self._is_gone(key)

    def _key(self, path: str, follow: bool) -> str:
        """The real path: links are followed, but for one that is meant itself, in the copy as below it."""
        path = self.path_of(path)
        for _ in range(MOST_LINKS):
            folder, _, name = path.rpartition("/")
            if not name:
                return path or "/"
            key = f"{self._real_folder(folder)}/{name}" if folder else path
            if not follow or (target := self._target(key)) is None:
                return key
            path = self.path_of(os.path.normpath(os.path.join(os.path.dirname(key), target)))
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def _target(self, key: str) -> str | None:
        """Where a link leads; None of all else."""
        there = copy if _is_there(copy := self._copy(key)) else key
        is_link = _is_there(there) and stat.S_ISLNK(_lstat(there).st_mode)
        return _readlink(there) if is_link else None

    def _real_folder(self, folder: str) -> str:
        if folder not in self._real_folders:
            self._real_folders[folder] = self._key(folder, follow=True)
        return self._real_folders[folder]

    def forget_links(self) -> None:
        """Look links up again: a folder may have become one."""
        self._real_folders.clear()

    def _copy_up(self, key: str, copy: str) -> None:
        """Take a file or a whole folder into the copy."""
        if os.path.islink(key) or not os.path.isdir(key):
            shutil.copy2(key, copy, follow_symlinks=False)
            return
        for place, folders, files in os.walk(key):
            os.makedirs(self._copy(place), exist_ok=True)
            folders[:] = [name for name in folders if self._is_below(os.path.join(place, name))]
            for name in files:
                one = os.path.join(place, name)
                if self._is_below(one) and not _is_there(self._copy(one)):
                    shutil.copy2(one, self._copy(one), follow_symlinks=False)
