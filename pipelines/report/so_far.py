"""What is known of a sweep while it is measured: its effects after each round, with verdicts from six on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from perfsweep.pipelines.analysis.collect import collect
from perfsweep.pipelines.analysis.columns import Where
from perfsweep.pipelines.analysis.compare import compare
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.analysis.quantities.completed import effect_table
from perfsweep.pipelines.plan.power import Forecast, forecast
from perfsweep.pipelines.report.tables import Table, effects_by_design
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Event, Kind, Manifest, SweepFolder
from perfsweep.pipelines.store.stop_rule import LEAST_TO_STOP
from perfsweep.workloads.errors import PerfsweepError

FIRST = 2
"""Rounds of the first table: one alone has no interval."""

GROWTH = 1.2
"""A table is made again after so many times the rounds: reading records stays a small part of a sweep."""

SHOWN = ("name", "ratio", "interval", "verdict", "parity")


@dataclass(frozen=True)
class SoFar:
    """Effects after so many rounds, and how long the rest will take where that can be told."""

    rounds: int
    table: Table[EffectResult]
    forecast: Forecast | None


def seldom(rounds: int, before: int) -> bool:
    """Whether a table is worth a place of its own in a log file that had one after `before` rounds."""
    return not before or rounds >= max(LEAST_TO_STOP, 2 * before)


class Rounds:
    """Hears of the trials of a sweep, and compares what is there whenever a round has ended."""

    def __init__(self, folder: SweepFolder, manifest: Manifest) -> None:
        self._folder, self._manifest = folder, manifest
        self._heard = Counter[int]()
        self._next = FIRST

    def after(self, event: Event) -> SoFar | None:
        """Compare, if this trial was the last of a round that is worth it."""
        if event.kind is not Kind.TIMING or event.round is None:
            return None
        self._heard[event.round] += 1
        rounds = event.round + 1
        # Arms leave a sweep, and never come back.
        if rounds < self._next or self._heard[event.round] < self._heard[event.round - 1]:
            return None
        self._next = max(rounds + 1, math.ceil(GROWTH * rounds))
        return self._compared(rounds)

    def _compared(self, rounds: int) -> SoFar | None:
        try:
            progress = read_progress(self._folder, self._manifest)
            trials = collect(self._folder, self._manifest, progress)
            effects = compare(self._folder, self._manifest, trials, progress).effects
        except (PerfsweepError, OSError):
            return None  # a record that is damaged, or not there yet; the comparison at the end says which
        timed = [effect for effect in effects if effect.ratio is not None]
        results = [one for _, of_design in effects_by_design(timed) for one in of_design]
        if not results:
            return None
        return SoFar(rounds, table_after(rounds, results), forecast(self._manifest, progress))


def table_after(rounds: int, effects: Sequence[EffectResult]) -> Table[EffectResult]:
    """Tabulate effects as they stand, with verdicts from as many rounds as may end a sweep."""
    early = rounds < LEAST_TO_STOP
    columns = (one for one in effect_table(()) if one.key in SHOWN and not (early and one.key == "verdict"))
    title = f"so far, {rounds} rounds" + (": no verdicts yet" if early else "")
    return Table(title, tuple(columns), tuple(effects)).at(Where.TERMINAL)
