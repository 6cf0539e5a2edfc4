"""Checksums in JSON objects: if a disk changes a digit, the JSON is still valid and the number is wrong."""

from __future__ import annotations

import json
import zlib
from typing import Any

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


def _checksum(values: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, sort_keys=True, separators=(",", ":")).encode())
