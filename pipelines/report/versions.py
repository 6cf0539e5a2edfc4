"""The command that compares a sweep with others, or with stored baselines, and says what became slower."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pipelines.analysis.columns import NAME_WIDTH, Column, Style
from pipelines.analysis.versions import Baseline, Change, Changes, compare_baselines, load
from pipelines.report.tables import Table
from pipelines.report.terminal import print_lines, print_table
from pipelines.statistics.clocks import Clock
from pipelines.units import bounds_text, percent


def show(console: Console, now: Baseline, then: Sequence[Baseline], margin: float) -> bool:
    """Print one table for each of the others, in the order given; whether any arm regressed."""
    all_changes = [compare_baselines(other, now) for other in then]
    for changes in all_changes:
        title = f"{changes.now.sweep} against {changes.then.sweep}: {changes.clock.value} now / then"
        print_table(console, Table(title, _columns(changes, margin), changes.changes))
        print_lines(console, _notes(changes, margin))
    return any(changes.regressions(margin) for changes in all_changes)


def _columns(changes: Changes, margin: float) -> tuple[Column[Change], ...]:
    worse = {change.label for change in changes.regressions(margin)}

    def verdict(one: Change) -> str:
        return "slower" if one.label in worse else ""

    beside, interval = f"beside {changes.now.reference}", "95 % interval"
    return (
        Column("arm", "arm", text=lambda one: one.label, width=NAME_WIDTH),
        Column("time", "time", text=lambda one: percent(one.ratio), kind=float),
        Column("bounds", interval, text=lambda one: bounds_text(one.ratio, one.low, one.high), kind=float),
        Column("relative", beside, text=_relative, kind=float),
        Column("relative_bounds", interval, text=_relative_bounds, kind=float, drop=1),
        Column("verdict", "", text=verdict, style=lambda one: Style.ALARM),
    )


def _relative(one: Change) -> str:
    return percent(one.relative[0]) if one.relative else ""


def _relative_bounds(one: Change) -> str:
    return bounds_text(*one.relative) if one.relative else ""


def _notes(changes: Changes, margin: float) -> list[str]:
    lines = list(changes.moved)
    if changes.other_machine:
        lines.append("the devices differ, so only ratios to the reference are judged")
    lines.append(
        f"slower: the interval lies wholly above {margin:+.0%}; rounds of two sweeps are not interleaved, so"
        " a machine that drifted in between shows up as a change of all arms together"
    )
    if changes.clock is Clock.WALL and Clock.CPU in (changes.then.clock, changes.now.clock):
        lines.append(
            "others had the cores of one of the two sweeps, and the other has no CPU time to compare"
        )
    if changes.missing:
        lines.append(f"only in one of the two: {', '.join(changes.missing)}")
    return lines


def stored_baseline(path: str) -> Baseline | None:
    """Load the stored baseline at `path`; None where it is the folder of a sweep."""
    return None if Path(path).is_dir() else load(Path(path))
