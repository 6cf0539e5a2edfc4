"""What follows a search: fresh rounds of the winner, what each of its levels is worth, and the preset."""

from __future__ import annotations

import dataclasses
import math
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from rich.console import Console

from pipelines.config import presets
from pipelines.config.types import DesignConfig, SweepCommand, SweepConfig, TuneCommand
from pipelines.exits import DONE, SOME_FAILED
from pipelines.plan.designs import Assignment
from pipelines.plan.plan import short_name
from pipelines.search.driver import Hunt
from pipelines.search.limits import limit_words
from pipelines.search.search import Answer, exhaustive
from pipelines.search.surrogate import Factor, Point
from pipelines.statistics.verdicts import Verdict
from pipelines.store.records import Outcome, SweepFolder
from pipelines.units import bounds_text, percent
from workloads.errors import ConfigError

TRIES = 3
"""Most verifications: each says whether the arm is to be changed once more."""
SURELY = 1.5
"""Standard errors beyond which a predicted cost is called one."""


@dataclass(frozen=True)
class Row:
    """One line of a verification: an effect as its file has it."""

    design: str
    toggle: str
    level: str
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str | None
    outcome: str
    parity: str | None

    @property
    def text(self) -> str:
        """The effect with its interval and verdict."""
        if self.ratio is None:
            return self.outcome or "no rounds"
        parity = f", results {self.parity}" if self.parity else ""
        return (
            f"{percent(self.ratio)} ({bounds_text(self.ratio, self.low, self.high)}) {self.verdict}{parity}"
        )


NAIVE, ALL_ON, TUNED = "naive", "all_on", "tuned"


class Conclusion:
    """What follows a search: fresh rounds of the winner, what each of its levels is worth, the preset."""

    def __init__(
        self, console: Console, command: TuneCommand, hunt: Hunt, measure: Callable[[SweepCommand], int]
    ) -> None:
        self.console, self.command, self.hunt, self.measure = console, command, hunt, measure
        self.answer: Answer = hunt.found
        self.factors = hunt.grid.factors
        self.useless: dict[str, str] = {}

    def run(self) -> int:
        """Verify and write; once more where fresh rounds say that another arm is better."""
        best = self.answer.best
        self._account()
        if best is None:
            self.console.print(
                f"no feasible arm: not even the reference: {self.hunt.words(self.hunt.origin)}",
                style="red",
                highlight=False,
            )
            return SOME_FAILED
        if best == self.hunt.origin:
            return self._nothing_better()
        for number in range(1, TRIES + 1):
            name = f"{self.hunt.bench.manifest.sweep.name}-verified" + (f"-{number}" if number > 1 else "")
            status = self.measure(self._verification(best, name))
            if status not in (DONE, SOME_FAILED):
                self.hunt.learnt()
                return status
            rows = _rows(SweepFolder(Path(self.command.runs) / name))
            mended = self._mended(best, rows) if number < TRIES else None
            if mended is None:
                return self._finish(best, rows, name, status)
            best = mended
        return DONE

    def _mended(self, best: Point, rows: Sequence[Row]) -> Point | None:
        """The arm that fresh rounds say is better than the winner of the search; None where they bear it
        out."""
        against = next((row for row in rows if row.toggle == TUNED and row.level == f"vs {ALL_ON}"), None)
        # For a stated number of iterations set-up and compiling count too, which these rounds leave out.
        by_time = self.command.tune.iterations is None
        if by_time and against is not None and against.low is not None and against.low > 1:
            self.console.print("\neverything on is faster: once more with it")
            return self._everything(best)
        useless = {factor.name: why for factor in self.factors if (why := _useless(rows, factor))}
        without = tuple(
            factor.start if factor.name in useless else n
            for factor, n in zip(self.factors, best, strict=True)
        )
        if not useless or not self.hunt.grid.legal(without) or without == self.hunt.origin:
            return None
        for toggle, why in useless.items():
            self.console.print(f"\n{toggle} {why} beside the others: once more without", highlight=False)
        self.useless |= useless
        return without

    def _account(self) -> None:
        bench, grid = self.hunt.bench, self.hunt.grid
        arms, rounds = exhaustive(grid.factors, grid.legal), self.command.tune.rounds
        self.console.print(
            f"\nsearched {len(self.hunt.view)} of {arms} arms in {bench.trials} timing trials; all of them"
            f" would take {arms * rounds} ({bench.trials / (arms * rounds):.0%})",
            highlight=False,
        )
        self.console.print(f"the search's report: {bench.folder.report_file}", highlight=False)

    def _nothing_better(self) -> int:
        ruled_out = [point for point, seen in self.hunt.view.items() if seen.value is None]
        every = len(ruled_out) == len(self.hunt.view) - 1
        why = (
            "every other arm was ruled out"
            if every
            else "nothing that was tried is faster than the reference"
        )
        self.console.print(f"{why}; no preset is written", highlight=False)
        for line in self._dropped([]):
            self.console.print(f"- {line}", highlight=False, markup=False)
        return SOME_FAILED if every else DONE

    def _verification(self, best: Point, name: str) -> SweepCommand:
        """Winner, reference and everything on in one ordinary sweep, each level of the winner left out in
        turn."""
        references = {NAIVE: self._levels(self.hunt.origin)}
        left: list[str] = []
        for i, factor in enumerate(self.factors):
            without = (*best[:i], factor.start, *best[i + 1 :])
            if best[i] == factor.start or without == self.hunt.origin or not self.hunt.grid.legal(without):
                continue
            if self._levels(without) == self._baseline(best, factor):
                left.append(factor.name)
            else:
                references[f"{factor.name} at {self._levels(without)[factor.name]}"] = self._levels(without)
        if (everything := self._everything(best)) is not None:
            references[ALL_ON] = self._levels(everything)
        designs = [DesignConfig("arms", arms={TUNED: dict(self._levels(best))})]
        designs += (
            [DesignConfig("leave_one_out", best=dict(self._levels(best)), toggles=left)] if left else []
        )
        kept = {field.name: getattr(self.command, field.name) for field in dataclasses.fields(SweepCommand)}
        return SweepCommand(**{**kept, "name": name, "sweep": SweepConfig(TUNED, designs, references)})

    def _baseline(self, best: Point, factor: Factor) -> Assignment | None:
        """The arm that leaving a toggle out gives; None where no legal arm has it at its baseline."""
        try:
            return self.hunt.bench.space.without(self._levels(best), factor.name)
        except ConfigError:
            return None

    def _everything(self, best: Point) -> Point | None:
        """Every toggle at the level that is best by itself, as far as they go together; None where that is
        the winner.

        What fresh rounds have found useless stays off.
        """
        point = best
        for i, factor in enumerate(self.factors):
            if factor.name in self.useless:
                continue
            high = self.answer.highs.get(factor.name, factor.start)
            changed = (*point[:i], high, *point[i + 1 :])
            if not factor.sizes and point[i] == factor.start and self.hunt.grid.legal(changed):
                point = changed
        seen = self.hunt.view.get(point)
        return None if point in (best, self.hunt.origin) or (seen and seen.value is None) else point

    def _finish(self, best: Point, rows: Sequence[Row], name: str, status: int) -> int:
        lines = self._explained(best, rows)
        against = {row.level: row for row in rows if row.toggle == TUNED}
        first = against[f"vs {NAIVE}"]
        self.console.print(f"\n[bold]tuned[/]: {self.hunt.name(best)}", highlight=False)
        self.console.print(f"against the reference: {first.text}", highlight=False)
        if everything := against.get(f"vs {ALL_ON}"):
            self.console.print(f"against everything on: {everything.text}", highlight=False)
        if self.command.tune.iterations is not None:
            self.console.print(
                f"for {self.command.tune.iterations:g} iterations: {self.hunt.words(best)} by the search",
                highlight=False,
            )
        for line in lines:
            self.console.print(f"- {line}", highlight=False, markup=False)
        if first.ratio is None or first.verdict in (
            Verdict.SLOWER.value,
            Verdict.DIFFERENT.value,
            Verdict.NO_DIFFERENCE.value,
        ):
            self.console.print(
                "the comparison does not bear the search out: no preset is written",
                style="yellow",
                highlight=False,
            )
            return SOME_FAILED
        bench, device = self.hunt.bench, self.hunt.bench.device
        workload = bench.manifest.sweep.workload
        place = presets.place(presets.preset_name(short_name(workload), device), Path(self.command.runs))
        facts = [
            f"{workload} on {device.name or device.type}: {first.text} against the reference",
            f"limits: {'; '.join(limit_words(self.command))}",
            *lines,
            f"by: {shlex.join(['perfsweep', *sys.argv[1:]])}",
            f"evidence: {Path(self.command.runs) / name}",
        ]
        presets.write(place, bench.space.choices(self._levels(best)), facts)
        self.console.print(f"preset: {place.file}", highlight=False)
        self.console.print(
            f"use it: perfsweep run workload={workload} {place.override}",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
        return status

    def _explained(self, best: Point, rows: Sequence[Row]) -> list[str]:
        """Why each level is in the tuned arm."""
        lines = []
        alone = sum(n != factor.start for n, factor in zip(best, self.factors, strict=True)) == 1
        for i, factor in enumerate(self.factors):
            if best[i] == factor.start:
                continue
            row = next(row for row in rows if row.toggle == TUNED) if alone else _row_of(rows, factor)
            worth = (
                row.text if row and row.ratio is not None else self._guess(factor, factor.start, invert=True)
            )
            lines.append(f"kept {factor.name}={factor.values[best[i]]}: {worth}")
        return [*lines, *self._dropped([f.name for i, f in enumerate(self.factors) if best[i] != f.start])]

    def _dropped(self, kept: Sequence[str]) -> list[str]:
        """Why each toggle that the tuned arm does not have is not in it."""
        lines = []
        for factor in self.factors:
            if factor.name in kept:
                continue
            high = self.answer.highs.get(
                factor.name, next(n for n in range(len(factor.values)) if n != factor.start)
            )
            if why := self.answer.dropped.get(factor.name):
                lines.append(f"dropped {factor.name}: {why}")
            elif why := self.useless.get(factor.name):
                lines.append(f"dropped {factor.name}: {why} beside the others")
            elif factor.sizes:
                lines.append(f"left {factor.name}={factor.values[factor.start]}: no other size is faster")
            else:
                lines.append(f"dropped {factor.name}={factor.values[high]}: {self._guess(factor, high)}")
        return lines

    def _guess(self, factor: Factor, number: int, invert: bool = False) -> str:
        """What a change of the best arm would cost, by all that the search measured."""
        found = self.answer.expected.get((factor.name, number))
        if found is None:
            return "not legal beside the others"
        cost, error = (-found[0], found[1]) if invert else found
        sure = "" if abs(cost) > SURELY * error else ", which is within the noise"
        return f"{percent(math.exp(cost))} (+-{2 * error:.1%}) by the search{sure}"

    def _levels(self, point: Point) -> Assignment:
        levels = self.hunt.grid.levels(point)
        assert levels is not None, "only legal arms come this far"
        return levels


def _rows(folder: SweepFolder) -> list[Row]:
    names = [field.name for field in dataclasses.fields(Row)]
    return [
        Row(*values)
        for values in pl.read_parquet(folder.tables_dir / "effects.parquet").select(names).iter_rows()
    ]


def _row_of(rows: Sequence[Row], factor: Factor) -> Row | None:
    """What a level of the tuned arm buys beside the others: against the arm without it."""
    for row in rows:
        if row.design == "leave_one_out" and row.toggle == factor.name:
            return row
        if row.toggle == TUNED and row.level.startswith(f"vs {factor.name} at "):
            return row
    return None


def _useless(rows: Sequence[Row], factor: Factor) -> str:
    """Why a level of the winner is better left out; empty where it is not."""
    row = _row_of(rows, factor)
    if row is not None and row.outcome == Outcome.INERT.value:
        return "does nothing"
    return "costs time" if row is not None and row.verdict == Verdict.SLOWER.value else ""
