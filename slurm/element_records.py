"""Read what elements of an array have written about themselves: one look into one folder for each array."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

from slurm.judge import ElementRecords, ExitRecord

_NAME = re.compile(r"^(?P<index>\d+)\.(?P<what>start|end|beat)(-(?P<restarts>\d+)\.json)?$")

TAIL_BYTES = 4096
"""How much of the end of Slurm's output is read."""


def read_records(folder: Path) -> dict[int, ElementRecords]:
    """Read the records of every element of an array; leftovers under temporary names mean nothing."""
    exits: dict[int, dict[int, ExitRecord]] = defaultdict(dict)
    starts: dict[int, int] = defaultdict(int)
    alive: dict[int, float] = {}
    for file in folder.iterdir() if folder.is_dir() else ():
        if not (match := _NAME.match(file.name)):
            continue
        index, restarts = int(match["index"]), int(match["restarts"] or 0)
        if match["what"] == "beat":
            alive[index] = _modified(file)
        elif match["what"] == "start":
            starts[index] = max(starts[index], restarts + 1)
        elif (record := _exit_record(file)) is not None:
            exits[index][restarts] = record
    indices = {*exits, *starts, *alive}
    return {
        i: ElementRecords(exits[i], max(starts[i], max(exits[i], default=-1) + 1), alive.get(i))
        for i in indices
    }


def tail_of(output: Path) -> str | None:
    """Read the end of what Slurm's batch script printed; None where there is no such file."""
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return None


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _exit_record(file: Path) -> ExitRecord | None:
    try:
        values = json.loads(file.read_text())
        return ExitRecord(int(values["status"]), tuple(values["signals"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not ours, or not whole yet
