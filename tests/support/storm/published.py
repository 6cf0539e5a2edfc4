"""Rows in W&B against the series on disk: each row of each trial that counts once, with its own values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from storm.invariants import Violation, counted_series, trials

Row = Mapping[str, Any]
Key = tuple[str, str, int, int]
"""(pack/arm, kind of row, round, place in the round)."""


def rows_wanted(folder: Path) -> dict[Key, float]:
    """Milliseconds of every row that a sweep is to have in W&B."""
    wanted: dict[Key, float] = {}
    for one, series in counted_series(folder, trials(folder)):
        if series is None:
            continue
        run, number = f"{one.values['pack']}/{one.values['arm']}", one.values["round"]
        for kind, name in (("iter", "wall_ns"), ("warmup", "warmup_wall_ns")):
            for place, wall_ns in enumerate(series.get(name, np.empty(0))):
                wanted[run, kind, number, place] = float(wall_ns) / 1e6
    return wanted


def rows_in(runs: Sequence[tuple[str, Sequence[str]]]) -> list[tuple[Key, float]]:
    """Every row of runs in W&B; a run is its configuration as JSON and its history as lines."""
    found = []
    for config, history in runs:
        values = json.loads(config)
        run = f"{_plain(values.get('pack'))}/{_plain(values.get('arm'))}"
        for line in history:
            row = json.loads(line)
            for kind in ("iter", "warmup"):
                if f"{kind}/ms" in row:
                    key = run, kind, int(row[f"{kind}/round"]), int(row[f"{kind}/in_round"])
                    found.append((key, float(row[f"{kind}/ms"])))
    return found


def _plain(value: Any) -> Any:
    """W&B wraps each value of a configuration."""
    return value["value"] if isinstance(value, dict) and "value" in value else value


def violations(folder: Path, runs: Sequence[tuple[str, Sequence[str]]]) -> Iterator[Violation]:
    """Rows that W&B lacks, has twice, has besides, or has with other values."""
    wanted, found = rows_wanted(folder), rows_in(runs)
    times = Counter(key for key, _ in found)
    lacking = sorted(wanted.keys() - times.keys())
    if lacking:
        yield Violation("lost", f"W&B lacks {len(lacking)} of {len(wanted)} rows, such as {lacking[0]}")
    if doubled := sorted(key for key, count in times.items() if count > 1):
        yield Violation("doubled", f"W&B has {len(doubled)} rows more than once, such as {doubled[0]}")
    if others := sorted(times.keys() - wanted.keys()):
        yield Violation("wrong", f"W&B has {len(others)} rows of nothing that counts, such as {others[0]}")
    altered = [key for key, value in found if key in wanted and not np.isclose(value, wanted[key])]
    if altered:
        yield Violation("wrong", f"{len(altered)} rows in W&B are not as recorded, such as {altered[0]}")
