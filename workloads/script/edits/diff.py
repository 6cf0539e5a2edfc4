"""A patch as a unified diff, which ``patch -p1`` and ``git apply`` read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path

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
