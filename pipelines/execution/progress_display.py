"""What a person sees while a sweep runs: the plan, progress, and how to come back.

On a terminal one line is redrawn; in a log file, or in a cell of a notebook, there is a line now and then.
"""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from pipelines.plan.power import power
from pipelines.store.options import MeasureConfig
from pipelines.store.records import Arm, Event, Kind, Manifest, Outcome, Pack, SweepFolder, read_status

LOG_EVERY_S = 10.0
"""Where output is no terminal, a line of progress at most this often."""

LABEL_WIDTH = 60
"""Arms with many levels are cut at this width in progress lines; the report has them whole."""


def show_plan(console: Console, manifest: Manifest, todo: dict[str, int], folder: str) -> None:
    """Print what will be measured, what is there already, and how small an effect the rounds can show."""
    sweep, measure = manifest.sweep, manifest.sweep.measure
    designs = Counter(effect.design for effect in manifest.effects).items()
    what = ", ".join(f"{count} by {design}" for design, count in designs)
    rounds = sum(len(pack.orders) for pack in manifest.packs)
    console.print(
        f"[bold]{sweep.name}[/]: workload {sweep.workload}, {len(manifest.arms)} arms,"
        f" {len(manifest.effects)} effects ({what})"
    )
    packs = "1 pack" if len(manifest.packs) == 1 else f"{len(manifest.packs)} packs"
    done = rounds - sum(todo.values())
    already = f"; {done} of {rounds} rounds are there already" if done else ""
    console.print(f"{packs} of {measure.rounds} rounds, every arm once a round {_where(measure)}{already}")
    console.print(f"{power(manifest)}{_until(measure)}", highlight=False)
    for effect in manifest.effects:
        if " = " in effect.toggle and effect.contrast:
            console.print(f"told together only, never one by one: {effect.toggle}", highlight=False)
    for refused in manifest.refused:
        console.print(f"left out: {refused.toggle}={refused.level}: {refused.reason}", style="yellow")
    console.print(f"records: {folder}\n", highlight=False)


def how_to_come_back(folder: str) -> str:
    """What a person types to see, follow or end a sweep whose jobs go on without this command."""
    return "\n".join(
        [
            "Come back from any shell with",
            f"  perfsweep status {folder}",
            (
                f"  perfsweep wait {folder}      follow it again; the same sweep command does too, and"
                " submits what is missing"
            ),
            f"  perfsweep logs {folder} --follow",
            f"  perfsweep cancel {folder}",
        ]
    )


def _where(measure: MeasureConfig) -> str:
    return (
        f"in processes that stay for {measure.turns} rounds"
        if measure.isolation == "resident"
        else "in a fresh process"
    )


def _until(measure: MeasureConfig) -> str:
    """When an adaptive sweep ends."""
    ends = [f"intervals are within +-{measure.precision:.1%}"] if measure.precision else []
    ends += [f"{measure.budget_s:g} s are spent"] if measure.budget_s else []
    return f"; up to {measure.rounds_planned} rounds, until {' or '.join(ends)}" if ends else ""


def show_arms(console: Console, manifest: Manifest) -> None:
    """Print every effect of the plan with its base, for dry runs."""
    table = Table(title="effects to be measured", title_justify="left")
    for heading in ("design", "toggle", "level", "base", "with it move"):
        table.add_column(heading)
    for effect in manifest.effects:
        base = (
            manifest.arm(effect.pairs[0][1]).label if len(effect.pairs) == 1 else f"{len(effect.pairs)} pairs"
        )
        base = f"a contrast of {len(effect.contrast)} arms" if effect.contrast else base
        table.add_row(effect.design, effect.toggle, effect.level, base, ", ".join(effect.also))
    console.print(table)


@dataclass(frozen=True)
class Trouble:
    """The first trial of an arm that ended in this way."""

    outcome: Outcome
    sentence: str

    @property
    def expected(self) -> bool:
        """Whether nobody need look into it."""
        return self.outcome is Outcome.UNSUPPORTED


class Tally:
    """How far a sweep is, trial by trial.

    Attributes
    ----------
    done, total : trials; `total` follows what is repeated, added or will never come
    stage, label : round or kind of the newest trial, and its arm
    """

    def __init__(self, manifest: Manifest, total: int) -> None:
        self.done, self.total, self.stage, self.label = 0, total, "", ""
        self._labels = {arm.id: arm.label for arm in manifest.arms}
        self._rounds = manifest.sweep.measure.rounds
        self._said: set[tuple[str, Outcome]] = set()

    def note(self, event: Event) -> Trouble | None:
        """Count a finished trial; what a person should hear of it: the first bad outcome of each arm."""
        self.done += 1
        # Repeated rounds and further seeds come on top of the plan.
        self.total = max(self.done, self.total)
        if event.outcome is Outcome.UNSUPPORTED and event.kind is Kind.EVIDENCE:
            self.total = max(self.done, self.total - self._rounds)  # no round will follow
        self.label = textwrap.shorten(
            self._labels.get(event.arm, event.arm).replace(",", ", "), LABEL_WIDTH, placeholder=" ..."
        )
        self.stage = f"round {event.round + 1}" if event.round is not None else event.kind.value
        if event.outcome is Outcome.OK or (event.arm, event.outcome) in self._said:
            return None
        self._said.add((event.arm, event.outcome))
        reason = event.reason.partition("\n")[0].removeprefix(f"{self.label}: ")
        return Trouble(event.outcome, f"{self.label}: {event.outcome.value}: {reason}")

    def __str__(self) -> str:
        newest = f", {self.stage}: {self.label}" if self.stage else ""
        return f"{self.done} of {self.total} trials{newest}"


class LiveProgress:
    """Shows events as they come."""

    def __init__(self, console: Console, manifest: Manifest, total: int) -> None:
        self._console, self._tally = console, Tally(manifest, total)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("trials"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=total)
        self._last_line = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Note one finished trial; the first bad outcome of each arm gets a line."""
        tally = self._tally
        trouble = tally.note(event)
        what = f"{tally.stage}: {tally.label}"[:44].ljust(44)
        self._bar.update(self._task, completed=tally.done, total=tally.total, description=what)
        if trouble:
            style = "dim" if trouble.expected else "yellow"
            self._console.print(trouble.sentence, style=style, highlight=False)
        if not self._console.is_terminal and time.monotonic() - self._last_line > LOG_EVERY_S:
            self._last_line = time.monotonic()
            self._console.print(str(tally), highlight=False)

    def close(self) -> None:
        """Where output is no terminal, say how far it came: the last line may be older."""
        if not self._console.is_terminal and self._tally.done:
            self._console.print(f"{self._tally.done} of {self._tally.total} trials", highlight=False)


class Stage:
    """What the newest trial of an arm is doing, read anew whenever the terminal is redrawn."""

    def __init__(self, folder: SweepFolder, arm: Arm) -> None:
        self._folder, self._arm = folder, arm

    def __rich__(self) -> str:
        trials = [(attempt, path) for path, _, _, attempt in self._folder.trial_dirs(self._arm.id)]
        stage = read_status(max(trials)[1]) if trials else None
        return f"{self._arm.label}: {stage or 'starting'}"


@contextmanager
def live(console: Console, manifest: Manifest, total: int) -> Iterator[LiveProgress]:
    """Show progress while the block runs."""
    progress = LiveProgress(console, manifest, total)
    with progress._bar:
        try:
            yield progress
        finally:
            progress.close()


def trials_ahead(manifest: Manifest, todo: dict[str, int]) -> int:
    """How many trials an unfinished sweep still needs, if every arm can run."""
    packs: dict[str, Pack] = {pack.id: pack for pack in manifest.packs}
    once = (Kind.EVIDENCE, Kind.COUNTING, *[Kind.COURSE] * manifest.sweep.measure.timed_parity)
    support = len(manifest.arms) * len(once)
    return sum(len(packs[name].arms) * rounds for name, rounds in todo.items()) + (
        support if any(todo.values()) else 0
    )
