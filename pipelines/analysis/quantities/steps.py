"""What the steps of a timing trial tell: how long the slow ones take, and what share waits for data."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from perfsweep.pipelines.analysis.effect_result import QuantityResult
from perfsweep.pipelines.analysis.quantities.quantity import (
    Measured,
    Paired,
    Quantity,
    Read,
    Source,
    Withheld,
)
from perfsweep.pipelines.statistics.estimates import Estimate
from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds, Weighted
from perfsweep.pipelines.statistics.paired_steps import LEAST_STEPS, SLOW, excess_of_slow_steps, percentile
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import Effect, Sweep, read_iterations
from perfsweep.pipelines.store.schema import declared_by
from perfsweep.pipelines.store.trial_files import iteration_times, phase_times
from perfsweep.pipelines.units import duration
from perfsweep.workloads.errors import RecordError

HOST, DEVICE = "host_", "device_"


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
    if (arrays.get(f"{DEVICE}ns", np.zeros(1)) < 0).any():
        return Withheld("the device's marks of some steps could not be had, so single steps are not known")
    outermost = (name.removeprefix(HOST) for name in arrays if name.startswith(HOST) and "/" not in name)
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
        return dataclasses.replace(result, text="\n".join(filter(None, lines)))


WHOLE = "the whole iteration"


def share_estimate(cells: Sequence[Cell]) -> Estimate:
    """Estimate the log of an arm's share from those of its rounds, as an effect of the part on the whole.

    A share is a ratio within a round, so that what slows a whole round down is not in it.
    """
    whole = (dataclasses.replace(cell, arm=WHOLE, value=1.0) for cell in cells)
    rounds = Rounds([*cells, *whole], "the stall")
    return rounds.estimate(Weighted({cells[0].arm: 1.0, WHOLE: -1.0}))


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
        return dataclasses.replace(result, value=None if isinstance(own, Withheld) else own)


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
