"""The folder of a program as a version has it: the version's code, and links to everything else.

A program that is run as a whole reads its code by itself, so the code must lie where it looks: in its current
folder, next to its script, and in the folders of its import path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsweep.workloads.imports import folder_of
from perfsweep.workloads.snapshot import Snapshot

_COMPILED = "__pycache__"
"""Each version compiles for itself: Python tells compiled code by size and second of its source."""


@dataclass(frozen=True)
class VersionFolder:
    """Replaces a folder of the checkout, and everything below it.

    Attributes
    ----------
    original, place : the folder, and the folder that replaces it
    kept : the version's code
    """

    original: Path
    place: Path
    kept: Snapshot

    @classmethod
    def build(cls, kept: Snapshot, folder: Path, place: Path) -> VersionFolder:
        """Fill `place`: copies of the version's code, links to what is no code, none of what it has not got.

        Parameters
        ----------
        folder : the program's current folder; the replaced folder contains it and the version's code
        """
        code = {*kept.copies, *kept.hidden}
        folder = folder.resolve()
        made = cls(Path(os.path.commonpath([folder, *(file.parent for file in code)])), place, kept)
        inner = {parent for path in (*code, folder / _COMPILED) for parent in path.parents}
        made._link(made.original, code, inner)
        for original, copy in kept.copies.items():
            made.of(original).parent.mkdir(parents=True, exist_ok=True)
            # No link: Python would import what lies next to its target.
            shutil.copyfile(copy, made.of(original))
        return made

    def _link(self, folder: Path, code: set[Path], inner: set[Path]) -> None:
        self.of(folder).mkdir(parents=True)
        for entry in folder.iterdir():
            if entry in inner and entry.is_dir():
                self._link(entry, code, inner)
            elif entry not in code and entry.name != _COMPILED:
                self.of(entry).symlink_to(entry)

    def of(self, path: Path) -> Path:
        """The replacement of a file or folder of the checkout; itself where it is elsewhere."""
        found = path if path.is_relative_to(self.original) else path.resolve()
        return self.place / found.relative_to(self.original) if found.is_relative_to(self.original) else path

    def words(self, given: Sequence[str]) -> list[str]:
        """The words of a command, whose absolute paths of code are the version's."""
        return [str(self.of(Path(word))) if self._is_code(word) else word for word in given]

    def _is_code(self, word: str) -> bool:
        return Path(word).is_absolute() and Path(word).resolve() in self.kept.copies

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Variables of a command, which imports the version's code wherever it would import the checkout's.

        A package of the repository that is installed for editing is found before what is installed.
        """
        typed = [entry for entry in given.get("PYTHONPATH", "").split(os.pathsep) if entry]
        entries = [self.of(Path(entry)) if Path(entry).is_absolute() else Path(entry) for entry in typed]
        path = dict.fromkeys(map(str, [*entries, *self._installed()]))
        return {**given, "PYTHONPATH": os.pathsep.join(path)} if path else dict(given)

    def _installed(self) -> list[Path]:
        """Folders of the version from which this Python imports its modules, in any current folder."""
        code = {*self.kept.copies, *self.kept.hidden}
        names = {_top(file, code) for file in code if file.suffix == ".py"}
        folders = {folder for name in names if (folder := folder_of(name))}
        return sorted(self.of(folder) for folder in folders if folder.is_relative_to(self.original))


def _top(file: Path, code: set[Path]) -> str:
    """The name by which a module, or the outermost package that it is in, is imported."""
    top = file.parent if file.name == "__init__.py" else file.with_suffix("")
    while top.parent / "__init__.py" in code:
        top = top.parent
    return top.name
