"""`perfsweep tune`: search for the best arm under limits, compare it with the reference in fresh rounds, write a preset."""

from __future__ import annotations

import dataclasses
import itertools
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from omegaconf import DictConfig
from rich.console import Console

from pipelines import collect, commands, compare, config, factors, launch, leaving, live, markdown, page, presets, provenance
from pipelines import publish as publishing
from pipelines.anova import Factor, Point
from pipelines.config import DesignConfig, SweepCommand, SweepConfig, TuneCommand
from pipelines.designs import Assignment
from pipelines.factors import Grid
from pipelines.follow import Held
from pipelines.measure.verdicts import Verdict
from pipelines.plan import short_name
from pipelines.progress import read_progress
from pipelines.published import published_line
from pipelines.records import SweepFolder
from pipelines.report import bounds_text, percent
from pipelines.search import Answer, Seen, Step, search
from pipelines.steps import Bench, Limits, PackBroke, Wanted
from pipelines.terminal import console_here
from workloads.errors import ConfigError

DESIGNS = {"ladder": "ladder", "alone": "one_at_a_time"}
"""How the report calls what a step compares; of other steps the arms have names."""
COUNTED = 1024
"""Most arms of an exhaustive search that are told apart into legal and illegal ones."""
SURELY = 1.5
"""Standard errors beyond which a predicted cost is called one."""


def tune(cfg: DictConfig) -> int:
    """Search, verify, write the preset; status as of a sweep."""
    command: TuneCommand = config.typed(cfg, TuneCommand)
    console = console_here()
    take_memory(command, "tune", command.tune.memory_gib)
    limits = Limits(command.tune.iterations, command.tune.compile_s)
    bench = Bench(console, command, cfg, limits, command.tune.rounds, command.tune.reference)
    refuse_too_much_memory("tune", command.measure.memory_gib, bench.device.memory_bytes)
    planned = factors.plan(bench.space, bench.reference.levels, command.tune)
    hunt = Hunt(console, bench, Grid(bench.space, bench.reference.levels, planned.factors))
    for (name, value), why in planned.left_out.items():
        console.print(f"left out: {name}={value}: {why}", style="yellow", highlight=False)
    hunt.show(command)
    if command.dry_run:
        return commands.DONE
    commands.prepare_tracking(console, command)
    with launch.locked(bench.folder):
        status = hunt.run(search(planned.factors, hunt.grid.legal, budget(command, bench.device.memory_bytes)))
    if status is not None:
        return status
    return Conclusion(console, command, hunt, provenance.sweep_yaml(cfg)).run()


def take_memory(command: SweepCommand, name: str, memory_gib: float | None) -> None:
    """Make the memory limit of a search one of its trials.

    Raises
    ------
    ConfigError
        Two limits contradict one another.
    """
    own = command.measure.memory_gib
    if memory_gib is not None and own is not None and own != memory_gib:
        raise ConfigError(
            f"{name}.memory_gib={memory_gib:g} and measure.memory_gib={own:g} contradict one another; give one of them"
        )
    command.measure.memory_gib = memory_gib if memory_gib is not None else own


def refuse_too_much_memory(name: str, memory_gib: float | None, there: int) -> None:
    """A limit above what the device has would limit nothing.

    Raises
    ------
    ConfigError
        It is.
    """
    if memory_gib is not None and there and memory_gib * 2**30 > there:
        raise ConfigError(
            f"{name}.memory_gib={memory_gib:g} is more than the {there / 2**30:.1f} GiB of the device; leave it out"
        )


def budget(command: SweepCommand, there: int) -> int | None:
    """Bytes that an arm may need: the limit, else nine tenths of what the device has."""
    if command.measure.memory_gib is not None:
        return int(command.measure.memory_gib * 2**30)
    return int(0.9 * there) or None


class Hunt:
    """Drives a search: what it asks for is measured, what is known is sent back, and a person sees how it goes."""

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
        names = [f"{f.name} ({', '.join(str(v) for v in f.values if v is not None)})" for f in self.grid.factors]
        self.console.print(
            f"[bold]{self.bench.manifest.sweep.name}[/]: workload {self.bench.manifest.sweep.workload}, "
            f"{arms_in_all(self.grid)} arms from {self.bench.reference.label}",
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
                leaving.detach(self.console, str(self.bench.folder.path), self.bench.cancel_jobs)
            else:
                self.console.print(f"\nstopped; finished rounds are kept in {self.bench.folder.path}", highlight=False)
            self.learnt()
            return commands.INTERRUPTED
        except PackBroke as broken:
            self.console.print(str(broken), style="red", highlight=False, markup=False)
            self.learnt()
            return commands.SOME_FAILED
        except Held as held:
            self.console.print(f"nothing more will happen by itself: {held}", style="yellow", highlight=False)
            self.console.print(live.how_to_come_back(str(self.bench.folder.path)), highlight=False)
            self.learnt()
            return commands.ATTENTION
        finally:
            self.write()
        return None

    def step(self, step: Step) -> None:
        """Measure the arms of a step, and print what became of each."""
        new = [point for point in step.points if point not in self._asked]
        known = [point for point in step.points if point in self.view]
        suffix = f", beside {self.name(step.base)}" if step.base and step.base != self.origin else ""
        count = len(new) or len(known)
        self.console.print(f"[bold]{step.name}[/]: {count} {'arm' if count == 1 else 'arms'}{suffix}", highlight=False)
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
            return f"out: {seen.reason}" if seen.outcome == "different" else f"out: {seen.outcome}: {seen.reason}"
        return f"{percent(math.exp(seen.value))} (+-{2 * math.sqrt(seen.variance):.1%})"

    def learnt(self) -> None:
        """Print the best of what is there, and how to go on."""
        fits = {point: seen.value for point, seen in self.view.items() if seen.value is not None and point != self.origin}
        if fits:
            best = min(fits, key=lambda point: fits[point] or 0.0)
            self.console.print(
                f"learnt so far: of {len(self.view)} arms the best is {self.name(best)}: {self.words(best)}, not verified",
                highlight=False,
                markup=False,
            )
        else:
            self.console.print("learnt so far: no arm beside the reference has finished its rounds", highlight=False)
        for point, seen in self.view.items():
            if seen.value is None:
                self.console.print(f"  {self.name(point)}: {self.words(point)}", highlight=False, markup=False)
        self.console.print("The same command continues where it stopped.")

    def write(self) -> None:
        """Tables and page of the search, from whatever is there."""
        folder, manifest = self.bench.folder, self.bench.manifest
        if not folder.manifest_file.exists() or not manifest.packs:
            return
        progress = read_progress(folder, manifest)
        table = collect.collect(folder, manifest, progress)
        comparison = compare.compare(folder, manifest, table, progress)
        found = provenance.read_provenance(folder.config_file, commands.environments(progress))
        page.write_html(folder, manifest, comparison, table, found)
        markdown.write_markdown(folder, comparison, found)
        done = publishing.Publication(folder).finish()
        if done.notice or done.warning:
            self.console.print(published_line(done, folder), style="yellow", highlight=False, soft_wrap=True)

    def _levels(self, point: Point) -> Assignment:
        levels = self.grid.levels(point)
        assert levels is not None, "searches ask for legal arms only"
        return levels


def arms_in_all(grid: Grid) -> int:
    """How many arms an exhaustive search would measure; illegal ones are told apart where there are not very many."""
    count = math.prod(len(factor.values) for factor in grid.factors)
    if count > COUNTED:
        return count
    return sum(map(grid.legal, itertools.product(*(range(len(factor.values)) for factor in grid.factors))))


def limit_words(command: TuneCommand) -> list[str]:
    """The limits of a search, in words."""
    tune = command.tune
    words = [f"results no looser than {tune.parity}"]
    words += [f"peak memory {command.measure.memory_gib:g} GiB"] if command.measure.memory_gib is not None else []
    words += [f"{tune.compile_s:g} s of compiling"] if tune.compile_s is not None else []
    return [*words, f"for {tune.iterations:g} iterations, set-up and compiling included" if tune.iterations else "for a long run"]


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
        return f"{percent(self.ratio)} ({bounds_text(self.ratio, self.low, self.high)}) {self.verdict}{parity}"


NAIVE, ALL_ON, TUNED = "naive", "all_on", "tuned"


class Conclusion:
    """What follows a search: fresh rounds of the winner, what each of its levels is worth, the preset."""

    def __init__(self, console: Console, command: TuneCommand, hunt: Hunt, config_text: str) -> None:
        self.console, self.command, self.hunt, self.config_text = console, command, hunt, config_text
        self.answer: Answer = hunt.found
        self.factors = hunt.grid.factors

    def run(self) -> int:
        """Verify and write; again without what turned out to cost time beside the others."""
        best = self.answer.best
        self._account()
        if best is None:
            self.console.print(
                f"no feasible arm: not even the reference: {self.hunt.words(self.hunt.origin)}", style="red", highlight=False
            )
            return commands.SOME_FAILED
        if best == self.hunt.origin:
            return self._nothing_better()
        for number in (1, 2):
            name = f"{self.hunt.bench.manifest.sweep.name}-verified" + (f"-{number}" if number > 1 else "")
            status = commands.measured(self.console, self._verification(best, name), self.config_text)
            if status not in (commands.DONE, commands.SOME_FAILED):
                self.hunt.learnt()
                return status
            rows = _rows(SweepFolder(Path(self.command.runs) / name))
            costly = [i for i, factor in enumerate(self.factors) if _costs_time(rows, factor)]
            without = tuple(factor.start if i in costly else best[i] for i, factor in enumerate(self.factors))
            if number == 2 or not costly or not self.hunt.grid.legal(without) or without == self.hunt.origin:
                return self._finish(best, rows, name, status)
            self.console.print(
                f"\n{', '.join(self.factors[i].name for i in costly)} costs time beside the others: once more without"
            )
            best = without
        return commands.DONE

    def _account(self) -> None:
        bench, grid = self.hunt.bench, self.hunt.grid
        arms, rounds = arms_in_all(grid), self.command.tune.rounds
        self.console.print(
            f"\nsearched {len(self.hunt.view)} of {arms} arms in {bench.trials} timing trials; all of them would take "
            f"{arms * rounds} ({bench.trials / (arms * rounds):.0%})",
            highlight=False,
        )
        self.console.print(f"the search's report: {bench.folder.report_file}", highlight=False)

    def _nothing_better(self) -> int:
        ruled_out = [point for point, seen in self.hunt.view.items() if seen.value is None]
        every = len(ruled_out) == len(self.hunt.view) - 1
        why = "every other arm was ruled out" if every else "nothing that was tried is faster than the reference"
        self.console.print(f"{why}; no preset is written", highlight=False)
        for line in self._dropped([]):
            self.console.print(f"- {line}", highlight=False, markup=False)
        return commands.SOME_FAILED if every else commands.DONE

    def _verification(self, best: Point, name: str) -> SweepCommand:
        """Winner, reference and everything on in one ordinary sweep, each level of the winner left out in turn."""
        references = {NAIVE: self._levels(self.hunt.origin)}
        left: list[str] = []
        for i, factor in enumerate(self.factors):
            without = (*best[:i], factor.start, *best[i + 1 :])
            if best[i] == factor.start or without == self.hunt.origin or not self.hunt.grid.legal(without):
                continue
            if self._levels(without) == self._baseline(best, factor):
                left.append(factor.name)
            else:
                references[f"{factor.name}={self._levels(without)[factor.name]}"] = self._levels(without)
        if (everything := self._all_on(best)) is not None:
            references[ALL_ON] = everything
        designs = [DesignConfig("arms", arms={TUNED: dict(self._levels(best))})]
        designs += [DesignConfig("leave_one_out", best=dict(self._levels(best)), toggles=left)] if left else []
        kept = {field.name: getattr(self.command, field.name) for field in dataclasses.fields(SweepCommand)}
        return SweepCommand(**{**kept, "name": name, "sweep": SweepConfig(TUNED, designs, references)})

    def _baseline(self, best: Point, factor: Factor) -> Assignment | None:
        """The arm that leaving a toggle out gives; None where no legal arm has it at its baseline."""
        try:
            return self.hunt.bench.space.without(self._levels(best), factor.name)
        except ConfigError:
            return None

    def _all_on(self, best: Point) -> Assignment | None:
        """Every toggle at the level that is best by itself, as far as they go together; None where that is the winner."""
        point = best
        for i, factor in enumerate(self.factors):
            high = self.answer.highs.get(factor.name, factor.start)
            changed = (*point[:i], high, *point[i + 1 :])
            if not factor.sizes and point[i] == factor.start and self.hunt.grid.legal(changed):
                point = changed
        seen = self.hunt.view.get(point)
        return None if point in (best, self.hunt.origin) or (seen and seen.value is None) else self._levels(point)

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
                f"for {self.command.tune.iterations:g} iterations: {self.hunt.words(best)} by the search", highlight=False
            )
        for line in lines:
            self.console.print(f"- {line}", highlight=False, markup=False)
        if first.ratio is None or first.verdict in (Verdict.SLOWER.value, Verdict.DIFFERENT.value, Verdict.NO_DIFFERENCE.value):
            self.console.print(
                "the comparison does not bear the search out: no preset is written", style="yellow", highlight=False
            )
            return commands.SOME_FAILED
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
            f"use it: perfsweep run workload={workload} {place.override}", highlight=False, soft_wrap=True, markup=False
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
            worth = row.text if row and row.ratio is not None else self._guess(factor, factor.start, invert=True)
            lines.append(f"kept {factor.name}={factor.values[best[i]]}: {worth}")
        return [*lines, *self._dropped([f.name for i, f in enumerate(self.factors) if best[i] != f.start])]

    def _dropped(self, kept: Sequence[str]) -> list[str]:
        """Why each toggle that the tuned arm does not have is not in it."""
        lines = []
        for factor in self.factors:
            if factor.name in kept:
                continue
            high = self.answer.highs.get(factor.name, next(n for n in range(len(factor.values)) if n != factor.start))
            if why := self.answer.dropped.get(factor.name):
                lines.append(f"dropped {factor.name}: {why}")
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
    return [Row(*values) for values in pl.read_parquet(folder.tables_dir / "effects.parquet").select(names).iter_rows()]


def _row_of(rows: Sequence[Row], factor: Factor) -> Row | None:
    """What a level of the tuned arm buys beside the others: against the arm without it."""
    for row in rows:
        if row.design == "leave_one_out" and row.toggle == factor.name:
            return row
        if row.toggle == TUNED and row.level.startswith(f"vs {factor.name}="):
            return row
    return None


def _costs_time(rows: Sequence[Row], factor: Factor) -> bool:
    row = _row_of(rows, factor)
    return row is not None and row.verdict == Verdict.SLOWER.value
