"""Checksums in JSON objects: if a disk changes a digit, the JSON is still valid and the number is wrong.

Also lines of such objects in files to which several processes append.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO

FIELD = "crc32"


def sealed(values: dict[str, Any]) -> dict[str, Any]:
    """Add the checksum of an object's content to it."""
    return {**values, FIELD: _checksum(values)}


def unsealed(values: dict[str, Any]) -> dict[str, Any]:
    """Check the checksum of an object, and return the object without it.

    Raises
    ------
    ValueError
        The content has changed, or has no checksum: two halves of damaged lines can form one valid object
        without it.
    """
    content = {name: value for name, value in values.items() if name != FIELD}
    if FIELD not in values:
        raise ValueError("it states no checksum")
    if values[FIELD] != _checksum(content):
        raise ValueError("its content does not have the checksum that it states")
    return content


def append_line(file: Path, values: dict[str, Any]) -> None:
    """Append one JSON line in a single write, so that concurrent writers do not mix."""
    with _opened(file) as out:
        # A writer that was killed, or met a full disk, left half a line, to which ours must not be glued.
        half = out.tell() and (out.seek(-1, os.SEEK_END), out.read(1))[1] != b"\n"
        out.write(b"\n" * bool(half) + json_line(values))


def _opened(file: Path) -> BinaryIO:
    """Looks at no folder unless it is missing: a shared disk answers slowly."""
    try:
        return file.open("ab+")
    except FileNotFoundError:
        file.parent.mkdir(parents=True, exist_ok=True)
        return file.open("ab+")


def json_line(values: dict[str, Any]) -> bytes:
    """Write an object as one line, with its checksum."""
    return json.dumps(sealed(values)).encode() + b"\n"


def _checksum(values: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, sort_keys=True, separators=(",", ":")).encode())
