"""Series and spreads that the report draws: one trace of iterations for each arm, and its rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.store.records import Arm, read_iterations
from workloads.errors import RecordError

POINTS = 300
"""Points of a trace: longer series are drawn as medians of equal bins, which keeps the page small and periods
visible."""


@dataclass(frozen=True)
class Trace:
    """Times of one trial's iterations in ms, thinned to at most POINTS; x counts iterations from the trial's
    start."""

    arm: str
    label: str
    warm_x: tuple[float, ...]
    warm_ms: tuple[float, ...]
    timed_x: tuple[float, ...]
    timed_ms: tuple[float, ...]


def thinned(values: np.ndarray, first: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Positions from `first` on and values [N], or medians of bins where N is above POINTS."""
    bins = np.array_split(np.arange(len(values)), min(len(values), POINTS)) if len(values) else []
    return tuple(first + float(np.mean(bin)) for bin in bins), tuple(
        float(np.median(values[bin])) for bin in bins
    )


def last_traces(trials: pl.DataFrame, names: Mapping[str, str]) -> list[Trace]:
    """The last used round of every arm (id to name) that has one; unreadable series are left out (compare
    names them)."""
    found = []
    for arm, name in names.items():
        own = trials.filter(pl.col("used") & (pl.col("arm") == arm) & (pl.col("outcome") == "ok"))
        if own.height == 0:
            continue
        try:
            arrays = read_iterations(Path(own.sort("round")["folder"][-1]))
        except RecordError:
            continue
        warm = arrays.get("warmup_wall_ns", np.zeros(0)) / 1e6
        found.append(Trace(arm, name, *thinned(warm, 0), *thinned(arrays["wall_ns"] / 1e6, len(warm))))
    return found


@dataclass(frozen=True)
class Spread:
    """Times per unit of one arm in ns, one for each used round."""

    label: str
    ns_per_unit: tuple[float, ...]


def spreads(trials: pl.DataFrame, names: Mapping[str, str]) -> list[Spread]:
    """All arms (id to name) that have rounds, in the order of the plan."""
    used = trials.filter(pl.col("used") & (pl.col("outcome") == "ok"))
    found = [
        (name, tuple(used.filter(pl.col("arm") == arm)["ns_per_unit"].to_list()))
        for arm, name in names.items()
    ]
    return [Spread(name, times) for name, times in found if times]


@dataclass(frozen=True)
class Rung:
    """One value of a size toggle: its median time per unit and peak memory, or how its trials ended."""

    value: float
    text: str
    ns_per_unit: float | None
    peak_bytes: int | None
    outcome: str


@dataclass(frozen=True)
class Frontier:
    """All measured values of one size toggle with everything else at rest."""

    toggle: str
    rungs: tuple[Rung, ...]


def frontiers(trials: pl.DataFrame, arms: Sequence[Arm], ladders: dict[str, set[str]]) -> list[Frontier]:
    """A frontier for each ladder: `ladders` names the toggle and the ids of its arms, base included."""
    return [
        Frontier(
            toggle,
            tuple(
                sorted(
                    (_rung(trials, arm, toggle) for arm in arms if arm.id in ids), key=lambda rung: rung.value
                )
            ),
        )
        for toggle, ids in ladders.items()
    ]


def _rung(trials: pl.DataFrame, arm: Arm, toggle: str) -> Rung:
    own = trials.filter(pl.col("arm") == arm.id)
    ok = own.filter(pl.col("used") & (pl.col("outcome") == "ok"))
    level = arm.levels[toggle]
    value = float(level) if isinstance(level, (int, float)) and not isinstance(level, bool) else float("inf")
    if ok.height:
        median, peak = ok["ns_per_unit"].median(), ok["peak_bytes"].max()
        return Rung(value, str(level), float(median), int(peak or 0), "ok")  # type: ignore[arg-type]
    bad = own.filter(pl.col("outcome") != "ok")["outcome"].to_list()
    return Rung(value, str(level), None, None, bad[-1] if bad else "no rounds")
