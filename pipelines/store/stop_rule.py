"""How many rounds a pack needs: as many as planned, or until the data are precise or the budget is spent.

A function of the records alone, so that a sweep that was interrupted stops where it would have stopped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from perfsweep.pipelines.statistics.estimates import precise_enough
from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds
from perfsweep.pipelines.store.records import Manifest, Outcome, Pack, TrialRecord


class TimedTrial(Protocol):
    """A trial of a round that counts."""

    @property
    def record(self) -> TrialRecord: ...


class Measured(Protocol):
    """The part of a sweep's progress that stopping depends on: see `perfsweep.pipelines.store.progress`."""

    @property
    def timing(self) -> Mapping[tuple[str, int], Mapping[int, object]]: ...

    def finished_attempt(self, pack: str, number: int, arms: Sequence[str]) -> int | None: ...

    def used(self, pack: Pack, number: int) -> Sequence[TimedTrial]: ...

    def seconds(self, pack: str, rounds: int) -> float: ...


class StopRule:
    """Precision and nothing else: stopping on a significant effect would find effects that are not there.

    All effects of a pack must be precise at once. The half-width is that of the interval which the effect
    will be judged by, and looks come after the planned rounds only, one for each replication.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._measure = manifest.sweep.measure
        self._looks: dict[tuple[str, int, int], bool] = {}

    def rounds(self, pack: Pack, progress: Measured) -> int:
        """Count the rounds that the pack needs."""
        measure = self._measure
        if not measure.adaptive:
            return len(pack.orders)
        there = self._leading(pack, progress)
        for number in range(min(measure.rounds, len(pack.orders)), len(pack.orders), measure.stride):
            if there < number or self.reason(pack, progress, number):
                return number
        return len(pack.orders)

    def _leading(self, pack: Pack, progress: Measured) -> int:
        """Count the finished rounds before the first that is not."""
        numbers = range(len(pack.orders))
        missing = (
            number for number in numbers if progress.finished_attempt(pack.id, number, pack.arms) is None
        )
        return next(missing, len(pack.orders))

    def reason(self, pack: Pack, progress: Measured, rounds: int) -> str | None:
        """Say why a pack that has this many rounds needs no more; None where it does."""
        spent = progress.seconds(pack.id, rounds)
        if self._measure.budget_s is not None and spent >= self._measure.budget_s:
            return f"{spent:.0f} s of the {self._measure.budget_s:g} s in measure.budget_s are spent"
        if self._measure.precision is None or not self._precise_enough(pack, progress, rounds):
            return None
        return f"every interval is within +-{self._measure.precision:.1%}"

    def _precise_enough(self, pack: Pack, progress: Measured, rounds: int) -> bool:
        """Ask `_precise` once per state of these rounds: a resumed sweep looks at the same ones again."""
        attempts = sum(len(progress.timing.get((pack.id, number), {})) for number in range(rounds))
        key = (pack.id, rounds, attempts)
        if key not in self._looks:
            self._looks[key] = self._precise(pack, progress, rounds)
        return self._looks[key]

    def _precise(self, pack: Pack, progress: Measured, rounds: int) -> bool:
        there = [
            (number, trial.record)
            for number in range(rounds)
            for trial in progress.used(pack, number)
            if trial.record.outcome is Outcome.OK and trial.record.units > 0
        ]
        cells = [Cell(pack.id, number, one.draw, one.arm, one.ns_per_unit) for number, one in there]
        table = Rounds(cells, "ns_per_unit")
        effects = [effect for effect in self._manifest.effects if effect.weights.keys() <= set(pack.arms)]
        target = math.log1p(self._measure.precision or 0.0)
        estimates = [table.estimate(effect) for effect in effects]
        # An effect without rounds has failed or cannot run: it will not become precise by waiting.
        return all(precise_enough(estimate, target) for estimate in estimates if estimate.n)
