"""Read what elements of an array have written about themselves: one listing of one folder for each array."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from perfsweep.slurm.job_outcome import ElementRecords, ExitRecord

_NAME = re.compile(r"^(?P<index>\d+)\.(?P<what>start|end)-(?P<restarts>\d+)\.json$")

TAIL_BYTES = 4096
"""How much of the end of Slurm's output is read."""


class RecordFiles:
    """The records below `submissions/`; a file is read once, since what has its name is never changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, set[str]] = defaultdict(set)
        self._records: dict[str, dict[int, ElementRecords]] = defaultdict(dict)

    def read(self, token: str) -> dict[int, ElementRecords]:
        """Read the records of every element of an array; leftovers under temporary names mean nothing."""
        for name in _names(self._folder / token) - self._known[token]:
            if (match := _NAME.match(name)) and self._note(token, match):
                self._known[token].add(name)
        return self._records[token]

    def _note(self, token: str, match: re.Match[str]) -> bool:
        """Apply one file; False where it has to be read again."""
        index, restarts = int(match["index"]), int(match["restarts"])
        records = self._records[token]
        before = records.get(index, ElementRecords({}))
        started = replace(before, starts=max(before.starts, restarts + 1))
        if match["what"] == "end":
            record = _exit_record(self._folder / token / match.string)
            if record is None:
                return False
            started = replace(started, exits={**before.exits, restarts: record})
        records[index] = started
        return True


def last_beat(folder: Path, index: int) -> float | None:
    """Find when an element gave its last sign of life, in seconds since the epoch; None before the first."""
    try:
        return (folder / f"{index}.beat").stat().st_mtime
    except OSError:
        return None


def tail_of(output: Path) -> str | None:
    """Read the end of what Slurm's batch script printed; None where there is no such file."""
    try:
        with output.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return None


def _names(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir()}
    except OSError:
        return set()  # no element has started


def _exit_record(file: Path) -> ExitRecord | None:
    try:
        values = json.loads(file.read_text())
        return ExitRecord(int(values["status"]), tuple(values["signals"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not ours, or not whole yet
