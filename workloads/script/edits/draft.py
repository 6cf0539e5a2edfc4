"""A patch that is being written: edits by file, sentences where there is none, and the unified diff."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfsweep.workloads.script.edits.site import Site
from perfsweep.workloads.script.edits.source import Edit, NoEdit, Source

Level = str | int | float | bool
Levels = Mapping[str, Level]


@dataclass(frozen=True)
class Changed:
    """An edit as the user reads it: the line as it was, and as it becomes."""

    file: str
    line: int
    before: str
    after: str

    def __str__(self) -> str:
        change = f"{self.before}  ->  {self.after}" if self.before else f"+ {self.after}"
        return f"{Path(self.file).name}:{self.line}  {change}"


@dataclass(frozen=True)
class Patch:
    """What became of some levels.

    Attributes
    ----------
    files : the new content of each file that changes
    changes : its edits, in the order of the files' lines
    advice : a sentence, with the line, for each change that has no edit
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    changes: Sequence[Changed] = ()
    advice: Sequence[str] = ()


@dataclass(frozen=True)
class Piece:
    """What a rule makes of a level at one place: edits, and how the user reads them."""

    changed: Changed
    edits: tuple[Edit, ...]


class Draft:
    """Collects edits by file, and sentences where none is possible."""

    def __init__(self, levels: Levels, sites: Sequence[Site], script: str, read: Callable[[str], bytes]):
        self.levels, self.sites, self.script = levels, sites, script
        self._read, self._sources = read, dict[str, Source]()
        self.pieces: list[Piece] = []
        self.advice: dict[str, None] = {}

    def of(self, what: str) -> list[Site]:
        """The sites of a kind."""
        return [site for site in self.sites if site.what == what]

    def source(self, file: str) -> Source:
        """A file that may be edited.

        Raises
        ------
        NoEdit
            It is no source that people edit.
        """
        if file not in self._sources:
            data = self._read(file)
            if exported := _EXPORTED.search(data):
                line = data.count(b"\n", 0, exported.start()) + 1
                raise NoEdit(f"is in the export of a notebook (line {line}); change the notebook")
            self._sources[file] = Source(data)
        return self._sources[file]

    def attempt(self, file: str, line: int, wanted: str, make: Callable[[], Piece | None]) -> None:
        """Make an edit, or say why there is none, and what it would have done."""
        try:
            piece = make()
            if piece is not None and piece not in self.pieces:
                self.source(piece.changed.file).edited(piece.edits)
                self.pieces.append(piece)
        except NoEdit as reason:
            self.advice.setdefault(f"{Path(file).name}:{line} {reason}. By hand: {wanted}")

    def own(self, site: Site) -> None:
        """Refuse a call that is not written in a file of the user's.

        Raises
        ------
        NoEdit
            It is in a library, or in a text that is executed.
        """
        if site.is_users:
            return
        if site.file.startswith("<"):
            raise NoEdit(
                f"runs a text as code (exec), which calls {site.called}; the text has no line to edit"
            )
        raise NoEdit(f"has {site.called} called by a library, {Path(site.file).name}:{site.line}")

    def finished(self) -> Patch:
        """The new files; an edit that does not go with those before it becomes a sentence."""
        kept: dict[str, list[Edit]] = {}
        changes = list[Changed]()
        for piece in self.pieces:
            file = piece.changed.file
            together = [*kept.get(file, ()), *piece.edits]
            try:
                self.source(file).edited(together)
            except NoEdit as reason:
                where = f"{Path(file).name}:{piece.changed.line}"
                self.advice.setdefault(f"{where} {reason}. By hand: {piece.changed.after}")
                continue
            kept[file] = together
            changes.append(piece.changed)
        files = {file: self.source(file).edited(edits) for file, edits in kept.items()}
        changes.sort(key=lambda one: (one.file, one.line))
        return Patch(files, changes, tuple(self.advice))


_EXPORTED = re.compile(rb"^# In\[[ \d]*\]:|^\s*get_ipython\(\)", re.MULTILINE)
"""What nbconvert writes into a script."""


_LINES = re.compile(rb"[^\n]*\n|[^\n]+")


def unified(before: Mapping[str, bytes], after: Mapping[str, bytes], folder: Path) -> bytes:
    """The differences of files, whose names are relative to a folder where they lie in it.

    Bytes stay as they are: line breaks, encodings, a last line without an end.
    """
    parts = [_of_file(before[file], text, _name(file, folder)) for file, text in after.items()]
    return b"".join(parts)


def _of_file(before: bytes, after: bytes, name: str) -> bytes:
    lines = difflib.diff_bytes(
        difflib.unified_diff,
        _LINES.findall(before),
        _LINES.findall(after),
        f"a/{name}".encode(),
        f"b/{name}".encode(),
    )
    return b"".join(
        one if one.endswith(b"\n") else one + b"\n\\ No newline at end of file\n" for one in lines
    )


def _name(file: str, folder: Path) -> str:
    place = Path(file)
    return str(place.relative_to(folder) if place.is_relative_to(folder) else place).lstrip("/")
