"""Quantities other than time: name and text, where values come from, and how rounds pair them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import Protocol

from perfsweep.pipelines.analysis.effect_result import QuantityResult
from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds
from perfsweep.pipelines.statistics.verdicts import ReasonCode
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Effect, Manifest, Sweep, SweepFolder


@dataclass(frozen=True)
class Withheld:
    """Replaces a value that cannot be had: the reason, as one sentence."""

    reason: str


NO_ROUND = Withheld("no round is finished")


@dataclass(frozen=True)
class Measured:
    """What quantities are read from: the timing trials that count, and other files of the sweep."""

    manifest: Manifest
    progress: Progress
    trials: Sequence[StoredTrial]
    times: Rounds
    folder: SweepFolder | None = None


class Source(Protocol):
    """Where the values and effects of one quantity in one sweep come from."""

    comments: Mapping[str, str] = MappingProxyType({})
    """A few words on the values of arms (by id), such as what made them large."""

    def of_arm(self, arm: str) -> float | Withheld:
        """Give the value of an arm (id)."""
        ...

    def of_effect(self, effect: Effect) -> QuantityResult:
        """Compare the arm of an effect with its base."""
        ...

    def bounds_of(self, arm: str) -> tuple[float, float] | None:
        """Give the ends of the 95 % interval of an arm's value by itself; None where there is none."""
        return None


@dataclass(frozen=True)
class Quantity:
    """One quantity other than time; `perfsweep.pipelines.analysis.quantities.completed` lists them.

    Attributes
    ----------
    key : what `report.columns` calls it, and the beginning of its columns in files and W&B
    heading : over the change in the table of effects
    arm_heading : over the values in the table of arms; ``{unit}`` is replaced by the workload's unit
    doc : one sentence, shown over the headings in the page
    source : makes what reads the values of a sweep; see `per_trial` for those of single trials
    text : a value as people read it, with its unit
    remarks : sentences on where the values come from, for the notes
    held_back_by : reasons of the verdict on an effect's time for which its change is too noisy too; without a
        time to compare (`NO_TIME`) that of every quantity is
    """

    key: str
    heading: str
    arm_heading: str
    doc: str
    source: Callable[[Measured], Source]
    text: Callable[[float], str]
    remarks: Callable[[Measured], Iterable[str]] = lambda measured: ()
    held_back_by: frozenset[ReasonCode] = frozenset()

    def interval_text(self, ends: tuple[float, float] | None) -> str:
        """Two ends of an interval of a value, which no line breaks, and their unit once; empty of none."""
        if not ends:
            return ""
        low, high = map(self.text, ends)
        number, _, unit = low.partition(" ")
        shared = unit and high.endswith(f" {unit}")
        return f"{number if shared else low} .. {high}".replace(" ", "\u00a0")


Read = Callable[[StoredTrial, Sweep], float | Withheld]
"""Reads the value of one timing trial, or says why there is none."""


def per_trial(name: str, read: Read) -> Callable[[Measured], Source]:
    """Make the source of a quantity that `read` finds in single trials; `name` is for messages."""
    return lambda measured: Paired(measured, name, read)


def recorded(key: str) -> Read:
    """Read a quantity of the record, for each of its units."""

    def read(trial: StoredTrial, sweep: Sweep) -> float | Withheld:
        if (value := trial.record.quantities.get(key)) is None:
            return Withheld(trial.record.withheld.get(key) or "the trials were measured without it")
        return value / trial.record.units

    return read


class Paired(Source):
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
