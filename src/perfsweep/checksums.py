"""Checksums in JSON objects: a digit that a disk changes is still JSON, and another number."""

from __future__ import annotations

import json
import zlib
from typing import Any

FIELD = "crc32"


def sealed(values: dict[str, Any]) -> dict[str, Any]:
    """Add the checksum of an object's content to it."""
    return {**values, FIELD: _checksum(values)}


def unsealed(values: dict[str, Any]) -> dict[str, Any]:
    """Take the checksum off an object.

    Raises
    ------
    ValueError
        The content is not the one that was sealed, or states no checksum: two halves of damaged lines can
        make one object that is whole but for it.
    """
    content = {name: value for name, value in values.items() if name != FIELD}
    if FIELD not in values:
        raise ValueError("it states no checksum")
    if values[FIELD] != _checksum(content):
        raise ValueError("its content does not have the checksum that it states")
    return content


def _checksum(values: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, sort_keys=True, separators=(",", ":")).encode())
