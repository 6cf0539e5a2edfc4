"""Copies of sources from outside the project: trials run these, whatever becomes of the originals.

A copy lies below the folder of the copies at the path of its original, where a user finds it too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

VARIABLE = "PERFSWEEP_SOURCES"
"""Of the environment of trials: the folder of the copies."""


_HIDDEN = ".hidden"
"""File in the folder of the copies that only a whole version has: paths, each with a null byte between."""


@dataclass(frozen=True)
class Snapshot:
    """The copies below a folder: of the files that a workload consists of, or of all code of a version."""

    root: Path

    @cached_property
    def copies(self) -> dict[Path, Path]:
        """Every copy, by the path of its original.

        Raises
        ------
        OSError
            A folder of them is gone or cannot be read: imports would find the originals, as they are by now.
        """
        found = os.walk(self.root, onerror=_refuse)
        files = sorted(Path(folder, name) for folder, _, names in found for name in names)
        return {Path("/", file.relative_to(self.root)): file for file in files if file != self._list}

    @cached_property
    def hidden(self) -> frozenset[Path]:
        """Files that lie among the originals and are not in the version: none of its imports finds them."""
        if not self.is_version:
            return frozenset()
        return frozenset(Path(os.fsdecode(line)) for line in self._list.read_bytes().split(b"\0") if line)

    @property
    def is_version(self) -> bool:
        """Whether these are all files of a version, of which a workload imports some."""
        return self._list.exists()

    @property
    def _list(self) -> Path:
        return self.root / _HIDDEN

    def hide(self, files: Iterable[Path]) -> None:
        """Make this a version, which has none of `files`."""
        self._list.write_bytes(b"\0".join(os.fsencode(file) for file in files))

    def folder(self, original: Path) -> Path:
        """The folder of the copies of what lies in a folder; that folder itself where there are none."""
        copy = self.copy_of(original)
        return copy if copy.is_dir() else original

    def copy_of(self, original: Path) -> Path:
        """Where the copy of a file belongs."""
        return self.root / original.absolute().relative_to("/")


def _refuse(error: OSError) -> None:
    raise error


def current() -> Snapshot | None:
    """The copies that this process is to run; None where it runs the originals."""
    root = os.environ.get(VARIABLE)
    return Snapshot(Path(root)) if root else None
