"""What a person sees while a sweep runs: the plan, a line of progress, and how to leave and come back.

On a terminal one line is redrawn, with a table of what is known so far below it; a log file, or a cell of a
notebook, has a line now and then.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from perfsweep.pipelines.analysis.collect import collect
from perfsweep.pipelines.analysis.columns import Where
from perfsweep.pipelines.analysis.compare import compare
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.analysis.quantities.completed import effect_table
from perfsweep.pipelines.analysis.todo import IN_ORDER, by_speed, by_todo
from perfsweep.pipelines.plan.power import Forecast, forecast, power
from perfsweep.pipelines.report.tables import Table, heading
from perfsweep.pipelines.report.terminal_table import drawn, fitting_columns, print_table
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.progress import BAD, GIVE_UP_AFTER
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Arm, Event, Kind, Manifest, Outcome, SweepFolder, read_status
from perfsweep.pipelines.store.stop_rule import LEAST_TO_STOP
from perfsweep.pipelines.store.trainings import trained_arms
from perfsweep.pipelines.terminal import bold, shell_line
from perfsweep.workloads.errors import PerfsweepError

LOG_EVERY_S = 10.0
"""Where output is no terminal, a line of progress at most this often."""

ESTIMATE_S = 3600.0
"""The time that is left is estimated from trials that ended within this time."""

FIRST_TABLE = 2
"""Rounds of the first table: one alone has no interval."""

GROWTH = 1.2
"""A table is made again after so many times the rounds: reading records stays a small part of a sweep."""

SHOWN = ("name", "speed", "interval", "parity")

LABEL_WIDTH = 60
"""Arms with many levels are cut at this width in progress lines; the report has them whole."""


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
    """What a person types to see, follow or end a sweep whose jobs go on without this command."""
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
class News:
    """A sentence that a person should hear; `expected` where nobody need look into it."""

    sentence: str
    expected: bool = False


Ahead = Counter[tuple[str, Kind]]
"""How many trials of each arm (id) and kind an unfinished sweep still needs."""

_MORE = {
    Kind.TIMING: "rounds that something disturbed, measured again",
    Kind.EVIDENCE: "further seeds",
    Kind.COURSE: "further checks of timed trials",
    Kind.QUALITY: "trainings to the target",
    Kind.RESULT: "results to keep",
}
"""What trials are that come on top of the plan."""


class Tally:
    """How far a sweep is, trial by trial.

    Attributes
    ----------
    done, total : trials; `total` follows what is repeated, added or will never come
    stage, label : round or kind of the newest trial, and its arm
    """

    def __init__(self, manifest: Manifest, ahead: Ahead) -> None:
        self.planned = self.total = ahead.total()
        self.done, self.stage, self.label = 0, "", ""
        wide = {Kind.TIMING: "rounds of arms whose intervals are too wide"}
        self._reasons = _MORE | (wide if manifest.sweep.measure.adaptive else {})
        self._left = ahead.copy()
        self._labels = {arm.id: arm.label for arm in manifest.arms}
        self._packs = Counter(arm for pack in manifest.packs for arm in pack.arms)
        self._more: Counter[str] = Counter()
        self._gone: Ahead = Counter()
        self._bad: Counter[str] = Counter()
        self._said: set[tuple[str, str]] = set()

    def note(self, event: Event) -> list[News]:
        """Count a finished trial; the first bad outcome of each arm, and why the total changes, are news."""
        self.done += 1
        self.label = textwrap.shorten(
            self._labels.get(event.arm, event.arm).replace(",", ", "), LABEL_WIDTH, placeholder=" ..."
        )
        self.stage = f"round {event.round + 1}" if event.round is not None else event.kind.value
        return [*self._grow(event), *self._hear(event)]

    def _grow(self, event: Event) -> Iterator[News]:
        """Trials on top of the plan make it longer; the first of each sort is news."""
        key = (event.arm, event.kind)
        self._left[key] -= 1
        if self._left[key] >= 0:
            return
        self.total += 1
        if self._gone[key] > 0:  # it comes after all
            self._gone[key] -= 1
            return
        why = self._reasons.get(event.kind, f"further {event.kind} trials")
        self._more[why] += 1
        if self._more[why] == 1:
            yield News(f"more trials than planned: {why}", expected=True)

    def _hear(self, event: Event) -> Iterator[News]:
        """The first trial of an arm that ended badly in its way, and that no further one will come."""
        if event.outcome is Outcome.OK:
            return
        unsupported = event.outcome is Outcome.UNSUPPORTED
        if unsupported and event.kind is Kind.COUNTING and self._left[event.arm, Kind.EVIDENCE] > 0:
            return  # the evidence trial says whether the arm can run at all
        gone = self._drop(event.arm) if self._is_last(event) else 0
        fewer = f"; {gone} trials fewer" if gone else ""
        if (event.arm, event.outcome) not in self._said:
            self._said.add((event.arm, event.outcome))
            reason = event.reason.partition("\n")[0].removeprefix(f"{self.label}: ")
            yield News(f"{self.label}: {event.outcome.value}: {reason}{fewer}", expected=unsupported)
        elif gone:
            yield News(f"{self.label}: not started again{fewer}", expected=True)

    def _is_last(self, event: Event) -> bool:
        """Whether no further trial of an arm will come: it cannot run, or its only pack retires it."""
        if event.outcome is Outcome.UNSUPPORTED:
            return event.kind is not Kind.COUNTING
        if event.final:
            return self._packs[event.arm] == 1
        self._bad[event.arm] += event.kind is Kind.TIMING and event.outcome in BAD
        return self._bad[event.arm] == GIVE_UP_AFTER and self._packs[event.arm] == 1

    def _drop(self, arm: str) -> int:
        """Take what will never come of an arm out of the total; how many trials that is."""
        gone: Ahead = Counter({key: self._left[key] for key in self._left if key[0] == arm})
        self._gone += gone  # of a Counter that keeps what is above zero
        self._left -= gone
        self.total -= (+gone).total()
        return (+gone).total()

    @property
    def changes(self) -> str:
        """Why the total is not what was planned; nothing where it is."""
        gone = self._gone.total()
        fewer = [f"{gone} fewer: arms that cannot go on"] if gone else []
        more = [f"{number} more: {why}" for why, number in self._more.items()]
        return f"{self.planned} planned, {', '.join([*fewer, *more])}" if fewer or more else ""

    @property
    def count(self) -> str:
        """How many trials are done, of how many, and why these are not those that were planned."""
        return f"{self.done} of {self.total} trials" + (f" ({self.changes})" if self.changes else "")

    def __str__(self) -> str:
        return f"{self.count}, {self.stage}: {self.label}" if self.stage else self.count


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
    """Tabulate effects as they stand, with verdicts from as many rounds as may end a sweep."""
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
            TextColumn("and"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            disable=not console.is_terminal,
            expand=True,
            speed_estimate_period=ESTIMATE_S,
        )
        self._task = self._bar.add_task("starting", total=self._tally.total)
        self._last_line = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Note one finished trial, and print what is news."""
        tally = self._tally
        for news in tally.note(event):
            style = "dim" if news.expected else "yellow"
            self._console.print(news.sentence, style=style, highlight=False, markup=False)
        if self._rounds and (found := self._rounds.after(event)):
            self._show(found)
        what = f"{tally.stage}: {tally.label}{self._until}"
        self._bar.update(self._task, completed=tally.done, total=tally.total, description=escape(what))
        if not self._console.is_terminal and time.monotonic() - self._last_line > LOG_EVERY_S:
            self._last_line = time.monotonic()
            line = f"{tally.done} of {tally.total} trials, {what if self._forecast else what + self._left}"
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
    def _until(self) -> str:
        """What was foreseen, less the time that has gone by since."""
        if self._forecast is None:
            return ""
        found, when = self._forecast
        left = max(0.0, found.seconds - (time.monotonic() - when))
        return f", {dataclasses.replace(found, seconds=left)}"

    @property
    def _left(self) -> str:
        """The time that is left, once two trials tell how long one takes."""
        left_s = next(task.time_remaining for task in self._bar.tasks if task.id == self._task)
        return f", about {timedelta(seconds=round(left_s))} left" if left_s else ""

    def close(self) -> None:
        """Say how far it came where output is no terminal, and why the total is not the planned one."""
        self._bar.table = None  # what follows has all of it
        if self._tally.done and (self._tally.changes or not self._console.is_terminal):
            self._console.print(self._tally.count, highlight=False)


class Stage:
    """What the newest trial of an arm is doing, read anew whenever the terminal is redrawn."""

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


def trials_ahead(manifest: Manifest, todo: Mapping[str, int]) -> Ahead:
    """Count the trials that a sweep with these unfinished rounds by pack needs, if every arm can run."""
    ahead: Ahead = Counter()
    courses = [Kind.COURSE] * manifest.sweep.measure.timed_parity
    trained, seeds = trained_arms(manifest), manifest.sweep.measure.target_seeds
    for pack in manifest.packs:
        rounds = todo.get(pack.id, 0)
        # A pack runs what is needed once before its first round.
        once = [Kind.COUNTING, Kind.EVIDENCE] if rounds >= len(pack.orders) else []
        for arm in pack.arms if rounds else ():
            ahead[arm, Kind.TIMING] += rounds
            ahead[arm, Kind.QUALITY] = seeds if arm in trained else 0
            ahead |= Counter({(arm, kind): 1 for kind in (*once, *courses)})
    return ahead


SECOND_S = 3.0
"""How long a second Ctrl-C is waited for."""


def detach(console: Console, folder: str, cancel: Callable[[], int], left: int = 0) -> None:
    """Say how to come back; on a terminal, offer to cancel the jobs to whoever presses Ctrl-C again.

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
