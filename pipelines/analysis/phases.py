"""What an iteration's time is made of: medians and phases of the used timing trials, from their series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from perfsweep.pipelines.store.records import read_iterations
from perfsweep.pipelines.store.trial_files import iteration_times, phase_times
from perfsweep.workloads.errors import RecordError

SCHEMA: dict[str, type[pl.DataType]] = {
    "arm": pl.String,
    "label": pl.String,
    "pack": pl.String,
    "round": pl.Int64,
    "phase": pl.String,
    "on": pl.String,
    "ns_per_unit": pl.Float64,
    "median_iteration_ns": pl.Float64,
}
WHOLE = "iteration"
"""The row of a trial for the whole iteration: marked phases and what lies between them."""

ROUNDING = 1e-6
"""Iterations may exceed their region by this part of it: both are whole nanoseconds."""


@dataclass(frozen=True)
class SeriesRead:
    """What the series of the used timing trials say.

    Attributes
    ----------
    phases : a row for each trial and phase
    unreadable : files that could not be read
    contradictions : folders of trials whose record contradicts their own iterations, with what is wrong
    """

    phases: pl.DataFrame
    unreadable: list[str]
    contradictions: dict[str, str]


def read_series(trials: pl.DataFrame) -> SeriesRead:
    """Read the series of each used timing trial that ended well.

    In `phases`, `ns_per_unit` is the phase's total over the region by the units done in it, so that phases of
    arms with different iterations compare; `on` says whose clock it is, the device's where its marks are
    complete, else the host's. Times are without what others took of the core meanwhile, as `ns_per_unit` of
    the trial is.
    """
    rows, unreadable, contradictions = [], [], {}
    for trial in trials.filter(pl.col("used") & (pl.col("outcome") == "ok")).iter_rows(named=True):
        arrays = {}
        try:
            arrays = read_iterations(Path(trial["folder"]))
        except RecordError as error:
            unreadable.append(str(error))
        if wrong := _contradiction(trial, arrays.get("wall_ns")):
            contradictions[trial["folder"]] = wrong
        elif arrays:
            shared = {name: trial[name] for name in ("arm", "label", "pack", "round")}
            rows += [{**shared, **row} for row in _rows(arrays, trial["units"], _kept(trial))]
    return SeriesRead(pl.DataFrame(rows, schema=SCHEMA), unreadable, contradictions)


def _contradiction(trial: Mapping[str, Any], wall_ns: np.ndarray | None) -> str:
    """Say what in a record cannot be, by itself or with its iterations [N]; empty where nothing is."""
    if not trial["units"] > 0:
        return f"it ended well with {trial['units']:g} units of work"
    if wall_ns is None:
        return ""
    if len(wall_ns) != trial["iterations"]:
        return f"it counts {trial['iterations']} iterations, and its series has {len(wall_ns)}"
    inside_s = float(wall_ns.sum()) / 1e9
    if inside_s > trial["region_s"] * (1 + ROUNDING):
        return f"its region of {trial['region_s']:.6g} s is shorter than its iterations, {inside_s:.6g} s"
    return ""


def _kept(trial: Mapping[str, Any]) -> float:
    """Part of the wall time that counts: what others took of the core is no phase's, and is taken off all."""
    wall_ns = trial.get("wall_ns_per_unit")
    return trial["ns_per_unit"] / wall_ns if wall_ns and trial.get("lost_ns") else 1.0


def _rows(arrays: Mapping[str, np.ndarray], units: float, kept: float) -> list[dict[str, object]]:
    on = "device" if "device_ns" in arrays else "host"
    rows: list[dict[str, object]] = [_row(WHOLE, on, iteration_times(arrays) * kept, units)]
    for key in arrays:
        if key.startswith("host_"):
            name = key.removeprefix("host_")
            where, times_ns = phase_times(arrays, name)
            rows.append(_row(name, where, times_ns * kept, units))
    return rows


def _row(name: str, on: str, times_ns: np.ndarray, units: float) -> dict[str, object]:
    present = times_ns[times_ns > 0]
    median = float(np.median(present)) if present.size else 0.0
    return {
        "phase": name,
        "on": on,
        "ns_per_unit": float(times_ns.sum()) / units,
        "median_iteration_ns": median,
    }


@dataclass(frozen=True)
class PhaseShare:
    """A phase of one arm: median over its rounds of the time per unit, in ns."""

    phase: str
    on: str
    ns_per_unit: float


def phases_of(table: pl.DataFrame, arm: str) -> tuple[float | None, tuple[PhaseShare, ...]]:
    """Sum up an arm: its median iteration in ns, and its phases, the longest first."""
    own = table.filter(pl.col("arm") == arm)
    whole = own.filter(pl.col("phase") == WHOLE)["median_iteration_ns"].median()
    grouped = own.filter(pl.col("phase") != WHOLE).group_by("phase", maintain_order=True)
    phases = grouped.agg(pl.col("on").last(), pl.col("ns_per_unit").median()).sort(
        "ns_per_unit", descending=True
    )
    shares = tuple(PhaseShare(name, on, time) for name, on, time in phases.iter_rows() if time)
    return (float(whole) if isinstance(whole, (int, float)) else None), shares
