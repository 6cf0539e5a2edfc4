"""Copies of sources from outside the project: trials run these, whatever becomes of the originals.

A copy lies below the folder of the copies at the path of its original, where a person finds it too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

VARIABLE = "PERFSWEEP_SOURCES"
"""Of the environment of trials: the folder of the copies."""


@dataclass(frozen=True)
class Snapshot:
    """The copies below a folder."""

    root: Path

    @cached_property
    def copies(self) -> dict[Path, Path]:
        """Every copy, by the path of its original."""
        files = sorted(file for file in self.root.rglob("*") if file.is_file())
        return {Path("/", file.relative_to(self.root)): file for file in files}

    def copy_of(self, original: Path) -> Path:
        """Where the copy of a file belongs."""
        return self.root / original.absolute().relative_to("/")


def current() -> Snapshot | None:
    """The copies that this process is to run; None where it runs the originals."""
    root = os.environ.get(VARIABLE)
    return Snapshot(Path(root)) if root else None
