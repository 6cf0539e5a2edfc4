"""What a run shows of its result: what the evidence is, and its place in output and files.

::

    evidence:
      file: [out.npy, "{scratch}/table.csv"]  # arrays and tables by value, anything else by content
      json: [loss, metrics.accuracy]          # of the last line of the output that is a JSON object
      pattern: 'score = (?P<score>\\S+)'       # the last match in the output
      output: true                            # everything the program prints, by content
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfsweep.workloads.command.program import Kept
from perfsweep.workloads.declarations import Check, Comparator
from perfsweep.workloads.errors import ConfigError, PerfsweepError

KINDS = ("file", "json", "pattern", "output")
OUTPUT = "output"

TABLES = frozenset({".npz", ".json", ".csv"})
"""Suffixes of files that hold several pieces of evidence."""


class NoEvidence(PerfsweepError):
    """A run that did not write what was to show its result."""


@dataclass(frozen=True)
class Sources:
    """The places of a run's evidence: files, keys of a JSON line, patterns, and the output as a whole."""

    files: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()
    output: bool = False

    @property
    def reported(self) -> tuple[str, ...]:
        """Names of what the program reports in its output."""
        return (*self.keys, *(name for pattern in self.patterns for name in pattern.groupindex))

    @property
    def checks(self) -> tuple[Check, ...]:
        """What parity compares."""
        files = [Check(shown_name(file) + "/*" * holds_several(file)) for file in self.files]
        output = [Check(OUTPUT, Comparator.IDENTICAL)] if self.output else []
        return (*map(Check, self.reported), *files, *output)


def read(declared: Mapping[str, Any], place: str = "workload.evidence") -> Sources:
    """Read the places of a command's evidence.

    Raises
    ------
    ConfigError
        A kind is unknown, a pattern cannot be used, or two pieces share a name; the message names it.
    """
    for kind in declared:
        if kind not in KINDS:
            close = difflib.get_close_matches(str(kind), KINDS, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise ConfigError(f"{place}.{kind} is unknown; {hint}evidence has {', '.join(KINDS)}")
    if not isinstance(declared.get(OUTPUT, False), bool):
        raise ConfigError(f"{place}.{OUTPUT}={declared[OUTPUT]} must be true or false")
    patterns = tuple(_pattern(text, f"{place}.pattern") for text in _texts(declared, "pattern", place))
    sources = Sources(
        _texts(declared, "file", place), _texts(declared, "json", place), patterns, bool(declared.get(OUTPUT))
    )
    names = [check.name for check in sources.checks]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{place} names {doubled[0]} twice; each piece needs a name of its own")
    return sources


def _texts(declared: Mapping[str, Any], kind: str, place: str) -> tuple[str, ...]:
    value = declared.get(kind)
    values = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(one, str) and one for one in values):
        raise ConfigError(f"{place}.{kind} must be a text or a list of texts")
    return tuple(values)


def _pattern(text: str, place: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text, re.MULTILINE)
    except re.error as error:
        raise ConfigError(f"{place}: {text} is no regular expression: {error}") from error
    if not pattern.groupindex:
        raise ConfigError(f"{place}: {text} names nothing; write what it finds as (?P<name>...)")
    return pattern


def shown_name(file: str) -> str:
    """The name of a file as evidence."""
    return file.replace("{scratch}/", "")


def holds_several(file: str) -> bool:
    """Whether a file holds several pieces of evidence, called FILE/NAME."""
    return any(file.endswith(suffix) for suffix in TABLES)


def from_output(sources: Sources, output: Kept) -> dict[str, float | np.ndarray]:
    """Find what a run reported in its output: numbers, lists of numbers [N], texts as their digest [32].

    Raises
    ------
    NoEvidence
        Something is missing; the message names it.
    """
    found: dict[str, float | np.ndarray] = {}
    if sources.keys:
        found |= _from_line(sources.keys, output)
    for pattern in sources.patterns:
        matches = [*pattern.finditer(output.text)]
        if not matches:
            raise NoEvidence(
                f"evidence.pattern: nothing in the output matches {pattern.pattern}{_cut(output)}"
            )
        found |= {name: as_value(text) for name, text in matches[-1].groupdict().items()}
    return found


def _from_line(keys: Iterable[str], output: Kept) -> dict[str, float | np.ndarray]:
    values = next(filter(None, map(_object, reversed(output.text.splitlines()))), None)
    if values is None:
        raise NoEvidence(f"evidence.json: no line of the output is a JSON object{_cut(output)}")
    return {key: as_value(_at(values, key)) for key in keys}


def _object(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None


def _at(values: Mapping[str, Any], key: str) -> Any:
    """The value of a key, whose dots lead into objects."""
    here: Any = values
    for part in (key,) if key in values else key.split("."):
        if not isinstance(here, Mapping) or part not in here:
            there = ", ".join(values)
            raise NoEvidence(f"evidence.json: the last JSON line has no {key}; it has: {there}")
        here = here[part]
    return here


def _cut(output: Kept) -> str:
    return "" if output.whole else f" (looked at: the last {output.limit >> 20} MiB of it)"


def as_value(value: Any) -> float | np.ndarray:
    """A number, numbers [N] of a list, or the digest [32] of anything else."""
    if isinstance(value, str | int | float):
        try:
            return float(value)
        except ValueError:
            return digest(str(value).encode())
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        array = np.asarray(None)
    if array.dtype.kind in "bif" and array.size:
        return array.astype(np.float64)
    return digest(json.dumps(value, sort_keys=True).encode())


def digest(content: bytes) -> np.ndarray:
    """SHA-256 as numbers [32], which either agree or do not."""
    return np.frombuffer(hashlib.sha256(content).digest(), np.uint8)


_TICK_NS = 10_000_000
"""A file's time may lie this far before the moment it was written at: the kernel's own clock ticks."""

State = tuple[int, int, int] | None


def file_state(file: Path) -> State:
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
    now = file_state(file)
    if now is None:
        raise NoEvidence(f"evidence.file: the run has not written {file}")
    if now == before and now[0] < started_ns - _TICK_NS:
        raise NoEvidence(f"evidence.file: {file} is older than the run, which has not written it")


def read_file(file: Path, name: str) -> dict[str, Any]:
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
