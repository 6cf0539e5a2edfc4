"""Quantities that every timing trial has a value of: effects by the sweep's estimator, from paired rounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median

from perfsweep.pipelines.analysis.quantities.quantity import (
    NO_ROUND,
    Measured,
    QuantityResult,
    Source,
    Withheld,
)
from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import Effect, Sweep

Read = Callable[[StoredTrial, Sweep], float | Withheld]
"""Reads the value of one timing trial, or says why there is none."""


def per_trial(name: str, read: Read) -> Callable[[Measured], Source]:
    """Make the source of a quantity that `read` finds in single trials; `name` is for messages."""
    return lambda measured: Paired(measured, name, read)


def recorded(key: str, share: Callable[[StoredTrial], float] = lambda trial: trial.record.units) -> Read:
    """Read a quantity of the record, divided by a `share` of it: by its units where nothing else is said."""

    def read(trial: StoredTrial, sweep: Sweep) -> float | Withheld:
        if (value := trial.record.quantities.get(key)) is None:
            return Withheld(trial.record.withheld.get(key) or "the trials were measured without it")
        return value / share(trial)

    return read


class Paired:
    """Values of timing trials, compared within rounds; an arm has the median of its rounds."""

    def __init__(self, measured: Measured, name: str, read: Read) -> None:
        self._values: dict[str, list[float]] = {}
        self._reasons: dict[str, str] = {}
        cells = []
        for trial in measured.trials:
            record = trial.record
            value = read(trial, measured.manifest.sweep)
            if isinstance(value, Withheld):
                self._reasons[record.arm] = value.reason
                continue
            self._values.setdefault(record.arm, []).append(value)
            if value > 0 and record.round is not None:  # zero has no ratio
                cells.append(Cell(record.pack, record.round, record.draw, record.arm, value))
        self._rounds = Rounds(cells, name)
        self._cells: dict[str, list[Cell]] = {}
        for cell in cells:
            self._cells.setdefault(cell.arm, []).append(cell)
        self._name = name

    def of_arm(self, arm: str) -> float | Withheld:
        """Give the median of an arm's rounds."""
        values = self._values.get(arm)
        if values:
            return median(values)
        return Withheld(self._reasons[arm]) if arm in self._reasons else NO_ROUND

    def of_effect(self, effect: Effect) -> QuantityResult:
        """Estimate the ratio of an arm to its base from log ratios within rounds."""
        value = self.of_arm(effect.pairs[0][0])
        own = None if isinstance(value, Withheld) else value
        for arm in effect.weights:
            if arm not in self._cells:
                return QuantityResult(value=own, withheld=self._reason(arm))
        estimate = self._rounds.estimate(effect)
        if not estimate.n:
            return QuantityResult(value=own, withheld=estimate.reason)
        low, high = estimate.interval.ratios if estimate.interval else (None, None)
        ratio = math.exp(estimate.log_ratio)
        return QuantityResult(ratio, low, high, estimate.p, own, estimate.rounds)

    def positive_cells(self) -> dict[str, list[Cell]]:
        """List the cells of arms that are above zero in every round."""
        return {arm: own for arm, own in self._cells.items() if all(value > 0 for value in self._values[arm])}

    def _reason(self, arm: str) -> str:
        value = self.of_arm(arm)
        return value.reason if isinstance(value, Withheld) else f"{self._name} is zero, which has no ratio"
