"""What you see while a sweep runs: the plan, a line of progress, its state from another shell, how to leave.

On a terminal one line is redrawn, with a table of what is known so far below it; a log file, or a cell of a
notebook, has a line now and then.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from rich import table as rich_table
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from perfsweep.pipelines.analysis.collect import collect
from perfsweep.pipelines.analysis.columns import Where
from perfsweep.pipelines.analysis.compare import compare
from perfsweep.pipelines.analysis.effect_result import IN_ORDER, EffectResult, by_speed, by_todo
from perfsweep.pipelines.analysis.quantity_results import effect_table
from perfsweep.pipelines.plan.power import Forecast, forecast, power
from perfsweep.pipelines.plan.tally import Ahead, Tally
from perfsweep.pipelines.report.tables import Table, heading, member
from perfsweep.pipelines.report.terminal_table import drawn, fitting_columns, print_table
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Arm, Event, Kind, Manifest, SweepFolder, read_status
from perfsweep.pipelines.store.stop_rule import LEAST_TO_STOP
from perfsweep.pipelines.terminal import bold, shell_line, whole_table
from perfsweep.workloads.errors import PerfsweepError

LOG_EVERY_S = 10.0
"""Where output is no terminal, a line of progress at most this often."""

FIRST_TABLE = 2
"""Rounds of the first table: one alone has no interval."""

GROWTH = 1.2
"""A table is made again after so many times the rounds: reading records stays a small part of a sweep."""

SHOWN = ("name", "speed", "interval", "parity")


def show_plan(console: Console, manifest: Manifest, finished: int, folder: str) -> None:
    """Print what will be measured, what is there already, and how small an effect the rounds can show."""
    sweep, measure = manifest.sweep, manifest.sweep.measure
    designs = Counter(effect.design for effect in manifest.effects).items()
    what = ", ".join(f"{count} by {design}" for design, count in designs)
    rounds = sum(len(pack.orders) for pack in manifest.packs)
    arms = f"{len(manifest.arms)} arms, {len(manifest.effects)} effects ({what})"
    console.print(bold(sweep.name, f": workload {sweep.workload}, {arms}"))
    packs = "1 pack" if len(manifest.packs) == 1 else f"{len(manifest.packs)} packs"
    of = "" if measure.adaptive else f" of {rounds}"  # as many as a rule wants
    already = f"; {finished}{of} rounds are there already" if finished else ""
    console.print(f"{packs} of {measure.rounds} rounds, in each of them all arms take turns{already}")
    console.print(f"{power(manifest)}{_until(measure)}", highlight=False)
    for effect in manifest.effects:
        if " = " in effect.toggle and effect.contrast:
            console.print(f"told together only, never one by one: {effect.toggle}", highlight=False)
    for refused in manifest.refused:
        console.print(f"left out: {refused.toggle}={refused.level}: {refused.reason}", style="yellow")
    console.print(f"records: {folder}\n", highlight=False, soft_wrap=True)


def how_to_come_back(folder: str) -> str:
    """Commands to see, follow or end a sweep whose jobs go on without this command."""
    again = "follow it again; the same sweep command does too, and submits what is missing"
    return "\n".join(
        [
            "Come back from any shell with",
            f"  {shell_line('status', folder)}",
            f"  {shell_line('wait', folder)}  # {again}",
            f"  {shell_line('logs', folder)} --follow",
            f"  {shell_line('cancel', folder)}",
        ]
    )


def _until(measure: MeasureConfig) -> str:
    """When an adaptive sweep ends."""
    if not measure.adaptive:
        return ""
    ends = [f"its interval is within +-{measure.precision:.1%}"] if measure.precision else []
    ends += [f"{measure.budget_s:g} s are spent"] if measure.budget_s else []
    return f"; up to {measure.rounds_planned} rounds, each arm until {' or '.join(ends)}"


def show_arms(console: Console, manifest: Manifest) -> None:
    """Print every effect of the plan with its base, for dry runs: a line each, as there may be thousands."""
    rows = [("design", "toggle", "level", "base", "with it move")]
    for effect in manifest.effects:
        base = (
            manifest.arm(effect.pairs[0][1]).label if len(effect.pairs) == 1 else f"{len(effect.pairs)} pairs"
        )
        base = f"a contrast of {len(effect.contrast)} arms" if effect.contrast else base
        rows.append((effect.design, effect.toggle, effect.level, base, ", ".join(effect.also)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    console.print("effects to be measured", style="italic")
    console.out("\n".join(lines), highlight=False)


@dataclass(frozen=True)
class SoFar:
    """Effects after so many rounds, and how long the rest will take where that can be told."""

    rounds: int
    table: Table[EffectResult]
    forecast: Forecast | None


def seldom(rounds: int, before: int) -> bool:
    """Whether a table is worth a place of its own in a log file that had one after `before` rounds."""
    return not before or rounds >= max(LEAST_TO_STOP, 2 * before)


class RoundsSoFar:
    """Hears of the trials of a sweep, and compares what is there whenever a round has ended."""

    def __init__(self, folder: SweepFolder, manifest: Manifest) -> None:
        self._folder, self._manifest = folder, manifest
        self._heard = Counter[int]()
        self._next = FIRST_TABLE

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
        if not timed:
            return None
        return SoFar(rounds, table_after(rounds, timed), forecast(self._manifest, progress))


def table_after(rounds: int, effects: Sequence[EffectResult]) -> Table[EffectResult]:
    """Tabulate effects measured so far, with verdicts from as many rounds as may end a sweep."""
    early = rounds < LEAST_TO_STOP
    columns = tuple(one for one in effect_table(()) if one.key in SHOWN)
    title = f"so far, {rounds} rounds" + (": no verdicts yet" if early else "")
    in_order = any(one.effect.design in IN_ORDER for one in effects)
    group = None if early or in_order else heading
    rows = effects if in_order else by_speed(effects) if early else by_todo(effects)
    return Table(title, columns, tuple(rows), group=group).at(Where.TERMINAL)


class _Bar(Progress):
    """A line of progress, with a table below it once there is one."""

    table: rich_table.Table | None = None

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        if self.table is not None:
            yield self.table


class _Left(ProgressColumn):
    """The time that is left, once that can be told."""

    def __init__(self, told: Callable[[], str]) -> None:
        super().__init__()
        self._told = told

    def render(self, task: Task) -> Text:
        left = self._told()
        return Text(f"and {left}" if left else "", style="progress.remaining")


class LiveProgress:
    """Shows events as they come."""

    def __init__(
        self, console: Console, manifest: Manifest, ahead: Ahead, folder: SweepFolder | None = None
    ) -> None:
        self._console, self._tally = console, Tally(manifest, ahead)
        self._rounds = RoundsSoFar(folder, manifest) if folder else None
        self._forecast: tuple[Forecast, float] | None = None
        self._printed = 0
        # The name of the arm gives way where the terminal is narrow: counts and times stay whole.
        self._bar = _Bar(
            TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("trials,"),
            TimeElapsedColumn(),
            _Left(lambda: self._left),
            console=console,
            disable=not console.is_terminal,
            expand=True,
        )
        self._task = self._bar.add_task("starting", total=self._tally.total)
        self._last_line = self._heard = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Note one finished trial, and print what is news."""
        tally, self._heard = self._tally, time.monotonic()
        for news in tally.note(event):
            style = "dim" if news.expected else "yellow"
            self._console.print(news.sentence, style=style, highlight=False, markup=False)
        if self._rounds and (found := self._rounds.after(event)):
            self._show(found)
        what = f"{tally.stage}: {tally.label}{self._until}"
        self._bar.update(self._task, completed=tally.done, total=tally.total, description=escape(what))
        if not self._console.is_terminal and time.monotonic() - self._last_line > LOG_EVERY_S:
            self._last_line = time.monotonic()
            left = "" if self._forecast or not self._left else f", about {self._left}"
            line = f"{tally.done} of {tally.total} trials, {what}{left}"
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _show(self, found: SoFar) -> None:
        """Show what is known; in a log file few times, as each table stays."""
        if found.forecast:
            self._forecast = found.forecast, time.monotonic()
        if self._console.is_terminal:
            columns = fitting_columns(found.table.columns, found.table.rows, self._console.width)
            self._bar.table = drawn(found.table, columns, self._console.width)
            self._bar.refresh()
        elif seldom(found.rounds, self._printed):
            self._printed = found.rounds
            print_table(self._console, found.table)

    @property
    def _foreseen(self) -> Forecast | None:
        """What was foreseen of the rounds to come, less the time that has gone by since."""
        if self._forecast is None:
            return None
        found, when = self._forecast
        return dataclasses.replace(found, seconds=max(0.0, found.seconds - (time.monotonic() - when)))

    @property
    def _until(self) -> str:
        return f", {self._foreseen}" if self._foreseen else ""

    @property
    def _left(self) -> str:
        """The time that is left, once that can be told."""
        foreseen = self._foreseen
        if foreseen is None:
            left_s = self._tally.left_s() - (time.monotonic() - self._heard)
        else:
            left_s = self._tally.left_s(foreseen.seconds)
        return f"{timedelta(seconds=round(max(0.0, left_s)))} left" if left_s < math.inf else ""

    def close(self) -> None:
        """Say how far it came where output is no terminal, and why the total is not the planned one."""
        self._bar.table = None  # what follows has all of it
        if self._tally.done and (self._tally.changes or not self._console.is_terminal):
            self._console.print(self._tally.count, highlight=False)


class Stage:
    """What the newest trial of an arm is doing, read again whenever the terminal is redrawn."""

    def __init__(self, folder: SweepFolder, arm: Arm) -> None:
        self._folder, self._arm = folder, arm

    def __rich__(self) -> str:
        trials = [(attempt, path) for path, _, _, attempt in self._folder.trial_dirs(self._arm.id)]
        stage = read_status(max(trials)[1]) if trials else None
        return f"{self._arm.label}: {stage or 'starting'}"


@contextmanager
def live(
    console: Console, manifest: Manifest, ahead: Ahead, folder: SweepFolder | None = None
) -> Iterator[LiveProgress]:
    """Show progress while the block runs; by the records in the sweep's folder, how long it will take too."""
    progress = LiveProgress(console, manifest, ahead, folder)
    with progress._bar:
        try:
            yield progress
        finally:
            progress.close()


SECOND_S = 3.0
"""How long a second Ctrl-C is waited for."""


def detach(console: Console, folder: str, cancel: Callable[[], int], left: int = 0) -> None:
    """Say how to come back; on a terminal, a second Ctrl-C offers to cancel the jobs.

    `left` packs were never submitted: nothing of them goes on.
    """
    told = f"\n{_what_goes_on(left)} {how_to_come_back(folder)}"
    console.print(told, highlight=False, soft_wrap=True)
    if not (console.is_terminal and sys.stdin.isatty()):
        return
    try:
        console.print(f"Ctrl-C again within {SECOND_S:g} seconds offers to cancel them.")
        time.sleep(SECOND_S)
    except KeyboardInterrupt:
        try:
            answer = console.input("\ncancel all jobs of this sweep? [y/N] ", markup=False)
        except (KeyboardInterrupt, EOFError):
            return
        if answer.strip().lower() in ("y", "yes"):
            console.print(
                f"cancelled {cancel()} jobs; finished rounds are kept in {folder}",
                highlight=False,
                markup=False,
            )


def _what_goes_on(left: int) -> str:
    if not left:
        return "detached: the jobs go on."
    packs = "1 pack was" if left == 1 else f"{left} packs were"
    return (
        f"detached: submitted jobs go on, but {packs} not submitted yet and will not be until the same sweep"
        " command is started again."
    )


STATUS_SCHEMA = "perfsweep.status/1"


@dataclass(frozen=True, kw_only=True)
class PackStatus:
    """One pack: its rounds, its trials, and the state of its job."""

    pack: str = member("its name, such as `p000`")
    arms: int = member("that it measures")
    rounds: int = member("finished")
    rounds_planned: int = member("that it is to have; grows while an adaptive sweep runs")
    trials: int = member("recorded, of every kind and attempt")
    not_ok: int = member("of them that did not end well")
    job: str | None = member("state of its job on Slurm; null where nothing of the sweep ever was there")
    note: str | None = member("what else is known of the job, such as why it waits; may be empty")

    @property
    def is_done(self) -> bool:
        """Whether all rounds are there."""
        return self.rounds >= self.rounds_planned


@dataclass(frozen=True, kw_only=True)
class SweepStatus:
    """What `perfsweep status SWEEP --json` prints."""

    schema: str = member(f"`{STATUS_SCHEMA}`", default=STATUS_SCHEMA)
    sweep: str = member("its name")
    workload: str = member("as the command line names it")
    folder: str = member("of the sweep, as it was given")
    exit: int = member("the exit status: 0 all rounds are there, 1 some are not, 3 a job needs attention")
    packs: tuple[PackStatus, ...] = member("every pack of the plan")
    skipped: tuple[str, ...] = member("files that could not be read, and why, in sentences")


def show_status(console: Console, status: SweepStatus) -> None:
    """Print a line for each pack, and what could not be read."""
    with_jobs = any(pack.job is not None for pack in status.packs)
    table = whole_table(
        rich_table.Table(title=f"{status.sweep}: {status.workload}", title_justify="left"),
        *("pack", "arms", "rounds finished", "trials", "not ok", *(("job", "note") if with_jobs else ())),
    )
    for pack in status.packs:
        counts = (f"{pack.rounds} of {pack.rounds_planned}", str(pack.trials), str(pack.not_ok))
        job = (pack.job or "", pack.note or "") if with_jobs else ()
        table.add_row(pack.pack, str(pack.arms), *counts, *job)
    console.print(table)
    for message in status.skipped:
        console.print(f"skipped: {message}", highlight=False, markup=False, soft_wrap=True)
