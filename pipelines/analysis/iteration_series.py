"""What iterations of timing trials tell: phases, how long the slow ones take, and what waits for data."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from perfsweep.pipelines.analysis.effect_result import QuantityResult
from perfsweep.pipelines.analysis.quantity import Measured, Paired, Quantity, Read, Source, Withheld
from perfsweep.pipelines.statistics.estimates import Estimate
from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds, Weighted
from perfsweep.pipelines.statistics.paired_steps import LEAST_STEPS, SLOW, excess_of_slow_steps, percentile
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import Effect, Sweep, read_iterations
from perfsweep.pipelines.store.schema import declared_by
from perfsweep.pipelines.store.trial_files import iteration_times, phase_times
from perfsweep.pipelines.units import duration
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


@dataclass(frozen=True)
class Steps:
    """Times [N] in ns of the steps of a region, by the device where it has marks, and of phases in them."""

    times_ns: np.ndarray
    phases: Mapping[str, np.ndarray]


def steps_of(folder: Path) -> Steps | Withheld:
    """Read the steps of a trial.

    Returns a reason where the series cannot be read, or the device's time of some steps is missing.
    """
    file = folder / "iterations.npz"
    return _read(folder, file.stat().st_mtime_ns if file.exists() else 0)


@lru_cache(maxsize=4096)  # several quantities read the same files
def _read(folder: Path, written: int) -> Steps | Withheld:
    try:
        arrays = read_iterations(folder)
    except RecordError as error:
        return Withheld(str(error))
    if (arrays.get("device_ns", np.zeros(1)) < 0).any():
        return Withheld("the device's marks of some steps could not be had, so single steps are not known")
    outermost = (
        name.removeprefix("host_") for name in arrays if name.startswith("host_") and "/" not in name
    )
    return Steps(
        iteration_times(arrays).astype(float),
        {name: phase_times(arrays, name)[1].astype(float) for name in outermost},
    )


NO_LOADER = "no step marks where it waits for data: there is no loader, or none that is seen"


class Stall(Paired):
    """Shares of timing trials, shown next to the share of the base, since a share has no factor."""

    def __init__(self, measured: Measured) -> None:
        phases = declared_by(measured.manifest).data_phases

        def read(trial: StoredTrial, sweep: Sweep) -> float | Withheld:
            found = steps_of(trial.folder)
            if isinstance(found, Withheld):
                return found
            waits = [found.phases[name] for name in phases if name in found.phases]
            if not waits:
                return Withheld(NO_LOADER)
            return float(sum(own.sum() for own in waits) / found.times_ns.sum())

        super().__init__(measured, "the stall", read)
        self._estimates = {arm: share_estimate(cells) for arm, cells in self.positive_cells().items()}

    def of_arm(self, arm: str) -> float | Withheld:
        """Give the share that the interval is around; without one, the median of the rounds."""
        return math.exp(self._estimates[arm].log_ratio) if self.bounds_of(arm) else super().of_arm(arm)

    def bounds_of(self, arm: str) -> tuple[float, float] | None:
        """Give the ends of the share's interval; None of a single round, or of one without any stall."""
        estimate = self._estimates.get(arm)
        if estimate is None or estimate.interval is None:
            return None
        low, high = estimate.interval.ratios
        return low, min(high, 1.0)

    def of_effect(self, effect: Effect) -> QuantityResult:
        """Estimate the ratio of the shares; people read both of them."""
        arm, base_arm = effect.pairs[0]
        own, base = self.of_arm(arm), self.of_arm(base_arm)
        result = super().of_effect(effect)
        if isinstance(own, Withheld) or isinstance(base, Withheld) or len(effect.pairs) > 1:
            return result
        interval = STALL.interval_text(self.bounds_of(arm))
        lines = (stall_text(own), interval, f"from {stall_text(base)}")
        return replace(result, text="\n".join(filter(None, lines)))


def share_estimate(cells: Sequence[Cell]) -> Estimate:
    """Estimate the log of an arm's share from those of its rounds, as an effect of the part on the whole.

    A share is a ratio within a round, so that what slows a whole round down is not in it.
    """
    whole = "the whole iteration"
    rounds = Rounds([*cells, *(replace(cell, arm=whole, value=1.0) for cell in cells)], "the stall")
    return rounds.estimate(Weighted({cells[0].arm: 1.0, whole: -1.0}))


def stall_text(share: float) -> str:
    """A share of the time."""
    return f"{share:.1%}".replace("%", " %")


STALL = Quantity(
    key="stall",
    heading="stall",
    arm_heading="stall",
    doc="share of the iteration in which the device waits for data, with its interval, and its base's below",
    source=Stall,
    text=stall_text,
)

NAMED_SHARE = 0.1
"""Part of the time that slow steps took more, from which a phase is named."""


def enough_steps(trial: StoredTrial) -> Steps | Withheld:
    """Read the steps of a trial that has enough of them for a tail."""
    found = steps_of(trial.folder)
    if isinstance(found, Withheld) or len(found.times_ns) >= LEAST_STEPS:
        return found
    return Withheld(
        f"percentiles need {LEAST_STEPS} steps in each round, and there are {len(found.times_ns)}; use"
        f" measure.iterations={LEAST_STEPS} or more"
    )


def _read_tail(at: float, *, per_unit: bool) -> Read:
    """Read a percentile of a trial's step in ns, or what falls on one of the units of a step."""

    def read(trial: StoredTrial, sweep: Sweep) -> float | Withheld:
        found = enough_steps(trial)
        if isinstance(found, Withheld):
            return found
        share = trial.record.units / trial.record.iterations if per_unit else 1.0
        return percentile(found.times_ns, at) / share

    return read


class Tail(Source):
    """A percentile of each arm's step; ratios are of the same by unit, since arms may do more in a step."""

    def __init__(self, measured: Measured, at: float) -> None:
        self._steps = Paired(measured, f"p{at:g} of the step", _read_tail(at, per_unit=False))
        self._units = Paired(measured, f"p{at:g} of the step by unit", _read_tail(at, per_unit=True))
        self.comments = slow_phases(measured) if at > SLOW else {}

    def of_arm(self, arm: str) -> float | Withheld:
        """Give the median over rounds of the percentile, in ns."""
        return self._steps.of_arm(arm)

    def of_effect(self, effect: Effect) -> QuantityResult:
        """Estimate the ratio from log ratios within rounds."""
        own = self.of_arm(effect.pairs[0][0])
        result = self._units.of_effect(effect)
        return replace(result, value=None if isinstance(own, Withheld) else own)


def slow_phases(measured: Measured) -> dict[str, str]:
    """Say of each arm which phases took the time that its slow steps took more, over all rounds."""
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for trial in measured.trials:
        found = enough_steps(trial)
        if isinstance(found, Steps):
            for phase, excess in excess_of_slow_steps(found.times_ns, found.phases).items():
                totals[trial.record.arm][phase] += excess  # type: ignore[assignment]
    return {arm: text for arm, excess in totals.items() if (text := _shares_text(excess))}


def _shares_text(excess: Mapping[str, float]) -> str:
    total = sum(excess.values())
    if total <= 0:
        return ""
    shares = sorted(((value / total, name) for name, value in excess.items()), reverse=True)
    named = [f"{name} {share:.0%}" for share, name in shares if share >= NAMED_SHARE]
    return f"slow: {', '.join(named)}" if named else ""


def _quantity(at: int) -> Quantity:
    return Quantity(
        key=f"p{at}",
        heading=f"p{at}",
        arm_heading=f"p{at} of the step",
        doc=f"the step that {at} % of steps do not exceed, taken within each round; the change is by unit",
        source=lambda measured: Tail(measured, float(at)),
        text=duration,
    )


TAILS = (_quantity(50), _quantity(95), _quantity(99))
