"""A search as it is driven: what it asks for is measured, what is known is sent back, and a person sees how
it goes."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console

from pipelines import api
from pipelines.config.types import TuneCommand
from pipelines.execution import detach, progress_display
from pipelines.execution.events import Held
from pipelines.exits import ATTENTION, INTERRUPTED, SOME_FAILED
from pipelines.plan.designs import Assignment
from pipelines.publish import publish as publishing
from pipelines.publish.published import published_line
from pipelines.search.factors import Grid
from pipelines.search.limits import limit_words
from pipelines.search.measurements import Bench, PackBroke, Wanted
from pipelines.search.search import Seen, Step, exhaustive
from pipelines.search.surrogate import Point
from pipelines.units import percent

DESIGNS = {"ladder": "ladder", "alone": "one_at_a_time"}
"""How the report calls what a step compares; of other steps the arms have names."""


class Hunt:
    """One search over a grid of arms, and what it knows so far."""

    def __init__(self, console: Console, bench: Bench, grid: Grid) -> None:
        self.console, self.bench, self.grid = console, bench, grid
        self.view: dict[Point, Seen] = {}
        self.found: Any = None  # what the search returned
        self._asked: dict[Point, str] = {grid.point({}): bench.reference.id}

    @property
    def origin(self) -> Point:
        """The reference."""
        return self.grid.point({})

    def show(self, command: TuneCommand) -> None:
        """Print what is searched, within which limits."""
        names = [
            f"{f.name} ({', '.join(str(v) for v in f.values if v is not None)})" for f in self.grid.factors
        ]
        self.console.print(
            f"[bold]{self.bench.manifest.sweep.name}[/]: workload {self.bench.manifest.sweep.workload}, "
            f"{exhaustive(self.grid.factors, self.grid.legal)} arms from {self.bench.reference.label}",
            highlight=False,
        )
        for name in names:
            self.console.print(f"  {name}", highlight=False, markup=False)
        self.console.print(f"limits: {'; '.join(limit_words(command))}", highlight=False)
        self.console.print(f"records: {self.bench.folder.path}\n", highlight=False)

    def run(self, steps: Any) -> int | None:
        """Measure until the search has its answer; a status where it ended before.

        What is known when it ends early is said, with how to go on.
        """
        try:
            step = next(steps)
            while True:
                self.step(step)
                step = steps.send(self.view)
        except StopIteration as end:
            self.found = end.value
        except KeyboardInterrupt:
            if self.bench.where.remote:
                detach.detach(self.console, str(self.bench.folder.path), self.bench.cancel_jobs)
            else:
                self.console.print(
                    f"\nstopped; finished rounds are kept in {self.bench.folder.path}", highlight=False
                )
            self.learnt()
            return INTERRUPTED
        except PackBroke as broken:
            self.console.print(str(broken), style="red", highlight=False, markup=False)
            self.learnt()
            return SOME_FAILED
        except Held as held:
            self.console.print(f"nothing more will happen by itself: {held}", style="yellow", highlight=False)
            self.console.print(
                progress_display.how_to_come_back(str(self.bench.folder.path)), highlight=False
            )
            self.learnt()
            return ATTENTION
        finally:
            self.write()
        return None

    def step(self, step: Step) -> None:
        """Measure the arms of a step, and print what became of each."""
        new = [point for point in step.points if point not in self._asked]
        known = [point for point in step.points if point in self.view]
        suffix = f", beside {self.name(step.base)}" if step.base and step.base != self.origin else ""
        count = len(new) or len(known)
        self.console.print(
            f"[bold]{step.name}[/]: {count} {'arm' if count == 1 else 'arms'}{suffix}", highlight=False
        )
        self.bench.measure([self.wanted(step, point) for point in step.points])
        self._asked |= {point: self.bench.arm(self._levels(point)) for point in step.points}
        self.look()
        for point in new:
            self.console.print(f"  {self.name(point)}: {self.words(point)}", highlight=False, markup=False)

    def look(self) -> None:
        """Read what is known of all arms so far."""
        seen = self.bench.seen()
        self.view = {point: seen[arm] for point, arm in self._asked.items() if arm in seen}

    def wanted(self, step: Step, point: Point) -> Wanted:
        """An arm of a step, as the sweep and its report call it."""
        base = self._levels(step.base) if step.base else self.bench.reference.levels
        design, levels = DESIGNS.get(step.name, "arms"), self._levels(point)
        moved = [i for i, factor in enumerate(self.grid.factors) if point[i] != (step.base or self.origin)[i]]
        if design != "arms" and len(moved) == 1:
            name = self.grid.factors[moved[0]].name
            return Wanted(levels, base, design, name, str(levels[name]))
        return Wanted(
            levels,
            base,
            "arms",
            self.bench.space.label(levels),
            "vs naive" if base == self.bench.reference.levels else "vs the best so far",
        )

    def name(self, point: Point) -> str:
        """What of an arm differs from the reference."""
        off = [(f, n) for f, n in zip(self.grid.factors, point, strict=True) if n != f.start]
        return ", ".join(f"{f.name}={f.values[n]}" for f, n in off) or "the reference"

    def words(self, point: Point) -> str:
        """What is known of an arm."""
        seen = self.view.get(point)
        if seen is None:
            return "not measured"
        if seen.value is None:
            return (
                f"out: {seen.reason}"
                if seen.outcome == "different"
                else f"out: {seen.outcome}: {seen.reason}"
            )
        return f"{percent(math.exp(seen.value))} (+-{2 * math.sqrt(seen.variance):.1%})"

    def learnt(self) -> None:
        """Print the best of what is there, and how to go on."""
        fits = {
            point: seen.value
            for point, seen in self.view.items()
            if seen.value is not None and point != self.origin
        }
        if fits:
            best = min(fits, key=lambda point: fits[point] or 0.0)
            self.console.print(
                f"learnt so far: of {len(self.view)} arms the best is {self.name(best)}: {self.words(best)},"
                " not verified",
                highlight=False,
                markup=False,
            )
        else:
            self.console.print(
                "learnt so far: no arm beside the reference has finished its rounds", highlight=False
            )
        for point, seen in self.view.items():
            if seen.value is None:
                self.console.print(
                    f"  {self.name(point)}: {self.words(point)}", highlight=False, markup=False
                )
        self.console.print("The same command continues where it stopped.")

    def write(self) -> None:
        """Tables and page of the search, from whatever is there."""
        folder, manifest = self.bench.folder, self.bench.manifest
        if not folder.manifest_file.exists() or not manifest.packs:
            return
        api.Sweep(folder, manifest).report()
        done = publishing.Publication(folder).finish()
        if done.notice or done.warning:
            self.console.print(published_line(done, folder), style="yellow", highlight=False, soft_wrap=True)

    def _levels(self, point: Point) -> Assignment:
        levels = self.grid.levels(point)
        assert levels is not None, "searches ask for legal arms only"
        return levels
