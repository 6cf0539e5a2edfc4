"""A sweep against others, or stored baselines, and what became slower: for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from perfsweep.pipelines.analysis.across.baselines import Baseline, Change, Changes, compare_baselines, load
from perfsweep.pipelines.analysis.columns import NAME_WIDTH, Column, Style, Where, file_column
from perfsweep.pipelines.report.objects import Rows, member
from perfsweep.pipelines.report.tables import Table
from perfsweep.pipelines.report.terminal_table import print_lines, print_table
from perfsweep.pipelines.units import bounds_text, speed

SLOWER = "slower"

CSV_SCHEMA = "perfsweep.compare.against.csv/1"
"""Name and version of the rows that `compare --against ... --csv` prints."""


@dataclass(frozen=True)
class JudgedChange:
    """An arm then and now, of two sweeps; `verdict` is *slower* or empty."""

    then: str
    change: Change
    verdict: str


def _bounds(one: JudgedChange) -> str:
    return bounds_text(one.change.ratio, one.change.low, one.change.high)


def _relative(one: JudgedChange) -> tuple[float | None, float | None, float | None]:
    return one.change.relative or (None, None, None)


def _relative_bounds(one: JudgedChange) -> str:
    return bounds_text(*_relative(one))


def change_columns(reference: str) -> tuple[Column[JudgedChange], ...]:
    """Declare the columns of two sweeps that are compared: of one arm each row."""
    interval, relative = ("95 % interval", "the same of its ratio to the baseline of its own sweep")
    return (
        Column("arm", "arm", lambda one: one.change.label, doc="label of the arm", width=NAME_WIDTH),
        Column(
            "ratio",
            "time",
            lambda one: one.change.ratio,
            lambda one: speed(one.change.ratio),
            doc="time now / time then",
            kind=float,
        ),
        file_column("low", lambda one: one.change.low, float, "lower end of its 95 % interval"),
        file_column("high", lambda one: one.change.high, float, "upper end"),
        Column("bounds", interval, text=_bounds, where=Where.PEOPLE, kind=float),
        Column(
            "relative",
            f"against {reference}",
            lambda one: _relative(one)[0],
            lambda one: speed(_relative(one)[0]),
            doc=relative,
            kind=float,
        ),
        file_column("relative_low", lambda one: _relative(one)[1], float, "lower end of its 95 % interval"),
        file_column("relative_high", lambda one: _relative(one)[2], float, "upper end"),
        Column("relative_bounds", interval, text=_relative_bounds, where=Where.PEOPLE, kind=float, drop=1),
        Column(
            "verdict",
            "",
            lambda one: one.verdict,
            doc="`slower` where the interval lies wholly beyond the margin, else empty",
            style=lambda one: Style.ALARM,
        ),
    )


THEN: Column[JudgedChange] = file_column("then", lambda one: one.then, doc="sweep that it is compared with")
"""The first column where the rows of several comparisons are in one table."""


@dataclass(frozen=True, kw_only=True)
class Against:
    """Another sweep, and what has changed since."""

    sweep: str = member("the other sweep")
    commit: str = member("commit that it was measured at")
    other_machine: bool = member("whether the devices differ, so that only ratios to the baseline are judged")
    moved: tuple[str, ...] = member("what else differs: commit, device, torch")
    missing: tuple[str, ...] = member("labels of arms that only one of the two has")
    slower: tuple[str, ...] = member("labels of arms that became slower by more than the margin")
    changes: Rows[JudgedChange] = member("arms that both have", columns=change_columns("reference"))


def compare_with(now: Baseline, then: Sequence[Baseline]) -> tuple[Changes, ...]:
    """Compare a sweep with others, in the order given.

    Raises
    ------
    ConfigError
        One did other work, or measured it in another way.
    """
    return tuple(compare_baselines(other, now) for other in then)


def show(console: Console, every: Sequence[Changes], margin: float) -> None:
    """Print one table for each of the others."""
    for changes in every:
        title = f"{changes.now.sweep} against {changes.then.sweep}: time now / then"
        table = Table(title, change_columns(changes.now.reference), judged(changes, margin))
        print_table(console, table.at(Where.TERMINAL))
        print_lines(console, _notes(changes, margin))


def against(changes: Changes, margin: float) -> Against:
    """Say the same for a program."""
    rows = judged(changes, margin)
    return Against(
        sweep=changes.then.sweep,
        commit=changes.then.commit,
        other_machine=changes.other_machine,
        moved=changes.moved,
        missing=changes.missing,
        slower=tuple(one.change.label for one in rows if one.verdict == SLOWER),
        changes=Rows(change_columns(changes.now.reference), rows),
    )


def judged(changes: Changes, margin: float) -> tuple[JudgedChange, ...]:
    """Say of every arm whether it became slower."""
    worse = {change.label for change in changes.regressions(margin)}
    return tuple(
        JudgedChange(changes.then.sweep, one, SLOWER if one.label in worse else "") for one in changes.changes
    )


def _notes(changes: Changes, margin: float) -> list[str]:
    lines = list(changes.moved)
    if changes.other_machine:
        lines.append("the devices differ, so only ratios to the baseline are judged")
    lines.append(
        f"slower: the interval lies wholly above {margin:+.0%}; rounds of two sweeps are not interleaved, so"
        " a machine that drifted in between shows up as a change of all arms together"
    )
    if changes.missing:
        lines.append(f"only in one of the two: {', '.join(changes.missing)}")
    return lines


def stored_baseline(path: str) -> Baseline | None:
    """Load the stored baseline at `path`; None where it is the folder of a sweep."""
    return None if Path(path).is_dir() else load(Path(path))
