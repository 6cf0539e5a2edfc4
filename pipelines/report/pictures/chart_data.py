"""What the report draws: one trace of iterations for each arm, its rounds, and the times of sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from perfsweep.pipelines.store.records import Arm, read_iterations
from perfsweep.pipelines.store.trial_files import iteration_times, phase_times
from perfsweep.workloads.errors import RecordError

POINTS = 300
"""Points of a trace: longer series are drawn as medians of equal bins, which keeps the page small and periods
visible."""


SPIKE, CAUSE = 3.0, 0.25
"""An iteration of this many medians is a spike, and a phase with this part of its excess is a cause."""
REGULAR = 0.8
"""Part of the distances between spikes that are equal where they come at regular intervals."""


@dataclass(frozen=True)
class Spikes:
    """Iterations that took much longer for one reason; `name` says why, and how often: evaluate, every 55."""

    name: str
    x: tuple[float, ...]
    ms: tuple[float, ...]


@dataclass(frozen=True)
class Trace:
    """Iteration times of one trial in ms, thinned to at most POINTS; x counts iterations from its start."""

    arm: str
    label: str
    warm_x: tuple[float, ...]
    warm_ms: tuple[float, ...]
    timed_x: tuple[float, ...]
    timed_ms: tuple[float, ...]
    spikes: tuple[Spikes, ...] = ()

    @property
    def has_warm_up(self) -> bool:
        """Whether a line leads up to the timed part; a discarded job is one time, which is none."""
        return len(self.warm_x) > 1


def thin(values: np.ndarray, first: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Give positions from `first` on and values [N], or medians of bins where N is above POINTS."""
    bins = np.array_split(np.arange(len(values)), min(len(values), POINTS)) if len(values) else []
    return tuple(first + float(np.mean(bin)) for bin in bins), tuple(
        float(np.median(values[bin])) for bin in bins
    )


def last_traces(trials: pl.DataFrame, names: Mapping[str, str]) -> list[Trace]:
    """Read the last used round of every arm (id to name); unreadable series are left to compare to name."""
    traces = []
    for arm, name in names.items():
        own = trials.filter(pl.col("used") & (pl.col("arm") == arm) & (pl.col("outcome") == "ok"))
        if own.height == 0:
            continue
        try:
            arrays = read_iterations(Path(own.sort("round")["folder"][-1]))
        except RecordError:
            continue
        warm = arrays.get("warmup_wall_ns", np.zeros(0)) / 1e6
        timed = thin(iteration_times(arrays) / 1e6, len(warm))
        traces.append(Trace(arm, name, *thin(warm, 0), *timed, spikes(arrays, len(warm))))
    return traces


def spikes(arrays: Mapping[str, np.ndarray], first: int) -> tuple[Spikes, ...]:
    """Find the timed iterations that took much longer, by the phases that were longer in them.

    Those with the largest sum come first; positions count from `first`.
    """
    times = iteration_times(arrays) / 1e6
    found: dict[str, list[int]] = {}
    for place in np.flatnonzero(times > SPIKE * np.median(times)):
        found.setdefault(_cause(arrays, int(place)), []).append(int(place))
    named = [
        Spikes(
            f"{cause}, {_how_often(places, len(times))}",
            tuple(float(first + place) for place in places),
            tuple(float(times[place]) for place in places),
        )
        for cause, places in found.items()
    ]
    return tuple(sorted(named, key=lambda one: -sum(one.ms)))


def _cause(arrays: Mapping[str, np.ndarray], place: int) -> str:
    """Name the phases that an iteration spends more time in than usual."""
    times = iteration_times(arrays)
    excess = times[place] - np.median(times)
    shares: dict[str, float] = {}
    for key in arrays:
        if key.startswith("host_"):
            name = key.removeprefix("host_")
            own = phase_times(arrays, name)[1]
            shares[name] = float((own[place] - np.median(own)) / excess)
    causes = [name for name in sorted(shares, key=lambda one: -shares[one]) if shares[name] >= CAUSE]
    return " and ".join(causes) or "outside phases"


def _how_often(places: Sequence[int], iterations: int) -> str:
    gaps = np.diff(places)
    if len(gaps) and np.mean(gaps == np.median(gaps)) >= REGULAR:
        return f"every {int(np.median(gaps))}"
    return f"{len(places)} of {iterations}"


@dataclass(frozen=True)
class SizeResult:
    """One value of a size toggle: its median time per unit and peak memory, or how its trials ended."""

    value: float
    text: str
    ns_per_unit: float | None
    peak_bytes: int | None
    outcome: str


@dataclass(frozen=True)
class SizeCurve:
    """Times of all sizes of one toggle, smallest first, with everything else at rest."""

    toggle: str
    sizes: tuple[SizeResult, ...]


def size_curves(trials: pl.DataFrame, arms: Sequence[Arm], ladders: dict[str, set[str]]) -> list[SizeCurve]:
    """Sum up each ladder: `ladders` names the toggle and the ids of its arms, base included."""
    return [
        SizeCurve(
            toggle,
            tuple(
                sorted(
                    (_size_result(trials, arm, toggle) for arm in arms if arm.id in ids),
                    key=lambda one: one.value,
                )
            ),
        )
        for toggle, ids in ladders.items()
    ]


def _size_result(trials: pl.DataFrame, arm: Arm, toggle: str) -> SizeResult:
    own = trials.filter(pl.col("arm") == arm.id)
    ok = own.filter(pl.col("used") & (pl.col("outcome") == "ok"))
    level = arm.levels[toggle]
    value = float(level) if isinstance(level, (int, float)) and not isinstance(level, bool) else float("inf")
    if ok.height:
        median, peak = ok["ns_per_unit"].median(), ok["peak_bytes"].median()
        return SizeResult(value, str(level), float(median), int(peak or 0), "ok")  # type: ignore[arg-type]
    bad = own.filter(pl.col("outcome") != "ok")["outcome"].to_list()
    return SizeResult(value, str(level), None, None, bad[-1] if bad else "no rounds")
