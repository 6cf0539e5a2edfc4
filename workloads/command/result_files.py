"""Files in which a run leaves its result: whether this run wrote them, and what they hold."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perfsweep.workloads.command.results import NoEvidence, as_value, digest

_TICK_NS = 10_000_000
"""A file's time may lie this far before the moment it was written at: the kernel's own clock ticks."""

State = tuple[int, int, int] | None


def state(file: Path) -> State:
    """Read by what a file is known to be another, or written again; None where there is none."""
    try:
        known = file.stat()
    except OSError:
        return None
    return known.st_mtime_ns, known.st_ino, known.st_size


def require_fresh(file: Path, before: State, started_ns: int) -> None:
    """Refuse a file that the run which began at `started_ns`, of `time.time_ns`, has not written.

    Raises
    ------
    NoEvidence
        It is missing, or as old as `before`.
    """
    now = state(file)
    if now is None:
        raise NoEvidence(f"evidence.file: the run has not written {file}")
    if now == before and now[0] < started_ns - _TICK_NS:
        raise NoEvidence(f"evidence.file: {file} is older than the run, which has not written it")


def read(file: Path, name: str) -> dict[str, Any]:
    """Read the evidence in a file, called `name`.

    Arrays of ``.npy``; of ``.npz`` (arrays), ``.json`` (leaves) and ``.csv`` (columns [rows]) each piece as
    ``name/piece``; of any other file its digest [32].

    Raises
    ------
    NoEvidence
        The file cannot be read as what it is called.
    """
    reader = _READERS.get(file.suffix)
    try:
        if reader is None:
            with file.open("rb") as content:
                return {name: np.frombuffer(hashlib.file_digest(content, "sha256").digest(), np.uint8)}
        pieces = reader(file)
    except Exception as error:  # a damaged file ends in whatever numpy's and zip's parsers meet
        said = str(error) or type(error).__name__
        raise NoEvidence(f"evidence.file: {file} cannot be read as {file.suffix}: {said}") from error
    return {f"{name}/{piece}" if piece else name: value for piece, value in pieces.items()}


def _array(file: Path) -> dict[str, Any]:
    array = np.load(file, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("it is an archive of several arrays, whose name should end in .npz")
    return {"": array}


def _archive(file: Path) -> dict[str, Any]:
    arrays = np.load(file, allow_pickle=False)
    if isinstance(arrays, np.ndarray):
        raise ValueError("it is a single array, whose name should end in .npy")
    with arrays:
        return dict(arrays)


def _json(file: Path) -> dict[str, Any]:
    return _leaves(json.loads(file.read_text()), "")


def _leaves(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {name or "value": as_value(value)}
    below = [_leaves(one, f"{name}.{key}" if name else str(key)) for key, one in value.items()]
    return {leaf: found for leaves in below for leaf, found in leaves.items()}


def _columns(file: Path) -> dict[str, Any]:
    """Columns by the names in the first row, or by number where that holds numbers already."""
    with file.open(newline="") as text:
        rows = [row for row in csv.reader(text) if row]
    if any(len(row) != len(rows[0]) for row in rows):
        raise ValueError("its rows differ in length")
    headed = bool(rows) and not any(map(_is_number, rows[0]))
    names = rows[0] if headed else [str(number) for number in range(len(rows[0]) if rows else 0)]
    return dict(zip(names, map(_column, zip(*rows[headed:], strict=True)), strict=False))


def _column(texts: tuple[str, ...]) -> np.ndarray:
    if all(map(_is_number, texts)):
        return np.asarray(texts, np.float64)
    return digest(json.dumps(texts).encode())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_READERS = {".npy": _array, ".npz": _archive, ".json": _json, ".csv": _columns}
