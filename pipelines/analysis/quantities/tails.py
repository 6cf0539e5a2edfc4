"""Tails: percentiles of the step, each taken within a round, and the phase that made slow steps slow."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping

from perfsweep.pipelines.analysis.quantities.paired import Paired, Read
from perfsweep.pipelines.analysis.quantities.quantity import (
    Measured,
    Quantity,
    QuantityResult,
    Source,
    Withheld,
)
from perfsweep.pipelines.analysis.quantities.steps import Steps, steps_of
from perfsweep.pipelines.statistics.step_percentiles import (
    LEAST_STEPS,
    SLOW,
    excess_of_slow_steps,
    percentile,
)
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import Effect, Sweep
from perfsweep.pipelines.units import duration

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


def _read(at: float, *, per_unit: bool) -> Read:
    """Read a percentile of a trial's step in ns, or what falls on one of the units of a step."""

    def read(trial: StoredTrial, sweep: Sweep) -> float | Withheld:
        found = enough_steps(trial)
        if isinstance(found, Withheld):
            return found
        share = trial.record.units / trial.record.iterations if per_unit else 1.0
        return percentile(found.times_ns, at) / share

    return read


class Tail:
    """A percentile of each arm's step; ratios are of the same by unit, since arms may do more in a step."""

    def __init__(self, measured: Measured, at: float) -> None:
        self._steps = Paired(measured, f"p{at:g} of the step", _read(at, per_unit=False))
        self._units = Paired(measured, f"p{at:g} of the step by unit", _read(at, per_unit=True))
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
    def source(measured: Measured) -> Source:
        return Tail(measured, float(at))

    return Quantity(
        key=f"p{at}",
        heading=f"p{at}",
        arm_heading=f"p{at} of the step",
        doc=f"the step that {at} % of steps do not exceed, taken within each round; the change is by unit",
        source=source,
        text=duration,
        of_wall_time=True,
    )


TAILS = (_quantity(50), _quantity(95), _quantity(99))
