"""Drive a search: measure what it proposes, send back what was observed, and print how it goes."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console

from perfsweep.pipelines import api
from perfsweep.pipelines.config.types import TuneCommand
from perfsweep.pipelines.execution.submitted import Held
from perfsweep.pipelines.exits import ATTENTION, INTERRUPTED, SOME_FAILED
from perfsweep.pipelines.plan.designs import Assignment, PlannedEffect
from perfsweep.pipelines.publish import publishing
from perfsweep.pipelines.publish.published import published_line
from perfsweep.pipelines.report import progress_display
from perfsweep.pipelines.search.factors import Grid, Point, limit_words
from perfsweep.pipelines.search.measurements import PackBroke, SearchSweep
from perfsweep.pipelines.search.search import Observation, Proposal, exhaustive
from perfsweep.pipelines.statistics.verdicts import verdict_word
from perfsweep.pipelines.terminal import bold
from perfsweep.pipelines.units import speed

DESIGNS = {"ladder": "ladder", "alone": "one_at_a_time"}
"""How the report calls what a proposal compares; of other proposals the arms have names."""


class SearchDriver:
    """One search over a grid of arms, with all observations so far."""

    def __init__(self, console: Console, search_sweep: SearchSweep, grid: Grid) -> None:
        self.console, self.sweep, self.grid = console, search_sweep, grid
        self.observations: dict[Point, Observation] = {}
        self.result: Any = None  # what the search returned
        self._arms: dict[Point, str] = {grid.point({}): search_sweep.reference.id}

    @property
    def origin(self) -> Point:
        """The baseline of the search."""
        return self.grid.point({})

    def print_space(self, command: TuneCommand) -> None:
        """Print what is searched, within which limits."""
        names = [
            f"{f.name} ({', '.join(str(v) for v in f.values if v is not None)})" for f in self.grid.factors
        ]
        sweep = self.sweep.manifest.sweep
        number = exhaustive(self.grid.factors, self.grid.legal)
        what = f": workload {sweep.workload}, {number} arms from {self.sweep.reference.label}"
        self.console.print(bold(sweep.name, what))
        for name in names:
            self.console.print(f"  {name}")
        self.console.print(f"limits: {'; '.join(limit_words(command))}")
        self.console.print(f"records: {self.sweep.folder.path}\n", soft_wrap=True)

    def run(self, proposals: Any) -> int | None:
        """Measure until the search has its result; a status where it ended before.

        What is known when it ends early is printed, with how to go on.
        """
        try:
            self._drive(proposals)
        except (KeyboardInterrupt, PackBroke, Held) as end:
            status = self._ended_early(end)
            self.print_best_so_far()
            return status
        finally:
            self.write_report()
        return None

    def _drive(self, proposals: Any) -> None:
        proposal = next(proposals)
        while True:
            self.measure(proposal)
            try:
                proposal = proposals.send(self.observations)
            except StopIteration as end:
                self.result = end.value
                return

    def _ended_early(self, end: BaseException) -> int:
        """Print why a search stopped before its result; the status of the command."""
        folder = str(self.sweep.folder.path)
        if isinstance(end, PackBroke):
            self.console.print(str(end), style="red")
            return SOME_FAILED
        if isinstance(end, Held):
            self.console.print(f"nothing more will happen by itself: {end}", style="yellow")
            back = progress_display.how_to_come_back(folder)
            self.console.print(back, soft_wrap=True)
            return ATTENTION
        if self.sweep.where.remote:
            progress_display.detach(self.console, folder, self.sweep.cancel_jobs)
        else:
            stopped = f"\nstopped; finished rounds are kept in {folder}"
            self.console.print(stopped, soft_wrap=True)
        return INTERRUPTED

    def measure(self, proposal: Proposal) -> None:
        """Measure the arms of a proposal, and print what became of each."""
        new = [point for point in proposal.points if point not in self._arms]
        known = [point for point in proposal.points if point in self.observations]
        base = proposal.base if proposal.base != self.origin else None
        suffix = f", next to {self.name(base)}" if base else ""
        count = len(new) or len(known)
        self.console.print(bold(proposal.name, f": {count} {'arm' if count == 1 else 'arms'}{suffix}"))
        self.sweep.measure([self.candidate(proposal, point) for point in proposal.points])
        self._arms |= {point: self.sweep.arm(self.levels(point)) for point in proposal.points}
        self.refresh()
        for point in new:
            self._print_arm(point)

    def refresh(self) -> None:
        """Read what is known of all arms so far."""
        observations = self.sweep.observations()
        self.observations = {
            point: observations[arm] for point, arm in self._arms.items() if arm in observations
        }

    def candidate(self, proposal: Proposal, point: Point) -> PlannedEffect:
        """An arm of a proposal, as the sweep and its report call it."""
        start, levels = proposal.base or self.origin, self.levels(point)
        base = self.levels(proposal.base) if proposal.base else dict(self.sweep.reference.levels)
        pairs = ((levels, base),)
        design = DESIGNS.get(proposal.name, "arms")
        changed = [factor for factor, n, m in zip(self.grid.factors, point, start, strict=True) if n != m]
        if design != "arms" and len(changed) == 1:
            name = changed[0].name
            return PlannedEffect(design, name, str(levels[name]), pairs, "naive")
        against = "vs naive" if base == self.sweep.reference.levels else "vs the best so far"
        return PlannedEffect("arms", self.sweep.space.label(levels), against, pairs, "naive")

    def name(self, point: Point) -> str:
        """The levels of an arm that differ from the baseline's."""
        off = [(f, n) for f, n in zip(self.grid.factors, point, strict=True) if n != f.start]
        return ", ".join(f"{f.name}={f.values[n]}" for f, n in off) or "the baseline"

    def describe(self, point: Point) -> str:
        """What is known of an arm: its cost against the baseline, or why it is ruled out."""
        one = self.observations.get(point)
        if one is None:
            return "not measured"
        if one.value is not None:
            return f"{speed(math.exp(one.value))} (+-{2 * math.sqrt(one.variance):.1%})"
        word = verdict_word(one.outcome)
        return f"out: {one.reason}" if word == "different" else f"out: {word}: {one.reason}"

    def print_best_so_far(self) -> None:
        """Print the best of what is there, and how to go on."""
        costs = {
            point: one.value
            for point, one in self.observations.items()
            if one.value is not None and point != self.origin
        }
        learnt = "no arm but the baseline has finished its rounds"
        if costs:
            best = min(costs, key=lambda point: costs[point])
            learnt = f"of {len(self.observations)} arms the best is {self.name(best)}: {self.describe(best)}"
            learnt += ", not verified"
        self.console.print(f"learnt so far: {learnt}")
        for point, one in self.observations.items():
            if one.value is None:
                self._print_arm(point)
        self.console.print("The same command continues where it stopped.")

    def _print_arm(self, point: Point) -> None:
        self.console.print(f"  {self.name(point)}: {self.describe(point)}")

    def write_report(self) -> None:
        """Tables and page of the search, from whatever is there."""
        folder, manifest = self.sweep.folder, self.sweep.manifest
        if not folder.manifest_file.exists() or not manifest.packs:
            return
        api.Sweep(folder, manifest).report()
        done = publishing.publish(folder)
        if done.notice or done.warning:
            self.console.print(published_line(done, folder), style="yellow", soft_wrap=True)

    def levels(self, point: Point) -> Assignment:
        """The arm of a legal point."""
        levels = self.grid.levels(point)
        assert levels is not None, "searches ask for legal arms only"
        return levels
