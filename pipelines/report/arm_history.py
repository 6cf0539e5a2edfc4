"""Arms over code versions and in other sweeps: what became of each since, and where its level changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from perfsweep.pipelines.analysis.baselines import SLOWER, Change, Changes
from perfsweep.pipelines.analysis.columns import NAME_WIDTH, Column, Style, Where, file_column, own_column
from perfsweep.pipelines.analysis.version_history import ArmHistory, History, Version
from perfsweep.pipelines.report.tables import Rows, Table, member
from perfsweep.pipelines.report.terminal_table import print_lines, print_table
from perfsweep.pipelines.statistics.change_points import ALPHA
from perfsweep.pipelines.statistics.estimates import LEVEL
from perfsweep.pipelines.units import bounds_text, duration, speed

SCHEMA = "perfsweep.history/2"
CSV_SCHEMA = "perfsweep.history.csv/1"
"""Name and version of the rows that `history --csv` prints: those of `arms[].versions`, with their arm."""


Ends = tuple[float | None, float | None, float | None]
"""A ratio with the ends of its interval, as far as there is one."""


def _change(one: Version) -> Ends:
    return (one.change.ratio, one.change.low, one.change.high) if one.change else (None, None, None)


def _relative(one: Version | JudgedChange) -> Ends:
    """The same of the ratio to the baseline."""
    return (one.change.relative if one.change else None) or (None, None, None)


def _beside(one: Version) -> str:
    ratio, low, high = _relative(one)
    return f"{speed(ratio)} ({bounds_text(ratio, low, high)})" if ratio is not None else ""


def _words(one: Version) -> str:
    """What became of the arm, and what moved along."""
    if one.change is None:
        return "first"
    moved = "; ".join(text for text in one.moved if not text.startswith("commit"))
    return ", ".join(text for text in (one.direction, moved) if text)


def version_columns(reference: str) -> tuple[Column[Version], ...]:
    """Declare the columns of an arm over versions: of one version each row."""
    return (
        own_column("sweep", "sweep", doc="of the version, or its name", width=NAME_WIDTH),
        own_column("commit", "commit", lambda name: name[:10], doc="full hash, empty where none is known"),
        own_column("rounds", "rounds", doc="of the arm", kind=int, drop=1),
        own_column("ns_per_unit", "time", duration, doc="median of them", kind=float),
        Column(
            "ratio",
            "change",
            lambda one: _change(one)[0],
            lambda one: speed(_change(one)[0]),
            doc="time / time of the version before; null of the first",
            kind=float,
        ),
        file_column("low", lambda one: _change(one)[1], float, "lower end of its 95 % interval"),
        file_column("high", lambda one: _change(one)[2], float, "upper end"),
        Column(
            "bounds",
            "95 % interval",
            text=lambda one: bounds_text(*_change(one)),
            where=Where.PEOPLE,
            kind=float,
        ),
        Column("beside", f"against {reference}", text=_beside, where=Where.PEOPLE, kind=float, drop=2),
        file_column(
            "relative", lambda one: _relative(one)[0], float, "the same of its ratio to the baseline"
        ),
        file_column("relative_low", lambda one: _relative(one)[1], float, "lower end of its 95 % interval"),
        file_column("relative_high", lambda one: _relative(one)[2], float, "upper end"),
        file_column(
            "direction",
            lambda one: one.direction,
            doc="`slower` or `faster` where the interval lies wholly beyond the margin, else empty",
        ),
        file_column(
            "other_machine",
            lambda one: one.other_machine,
            bool,
            "whether the device is another, so that `relative` is judged in place of `ratio`",
        ),
        file_column(
            "moved", lambda one: "; ".join(one.moved), doc="what else differs: commit, device, torch"
        ),
        own_column(
            "level",
            "new level",
            speed,
            doc="time from this version on / time before, where a change point lies; else null",
            kind=float,
            optional=True,
        ),
        Column("words", "", text=_words, where=Where.PEOPLE, width=NAME_WIDTH),
    )


ARM: Column[Version] = file_column("arm", lambda one: one.arm, doc="label of the arm")
"""The first column where the rows of several arms are in one table."""


@dataclass(frozen=True, kw_only=True)
class ChangePointObject:
    """A version from which on an arm has another level."""

    version: int = member("its place among the versions of the arm, from 0")
    sweep: str = member("of the version, or its name")
    commit: str = member("full hash, empty where none is known")
    ratio: float = member("time from there to the next change point / time from the last one to there")


@dataclass(frozen=True, kw_only=True)
class ArmHistoryObject:
    """One arm over the versions."""

    arm: str = member("label of the arm")
    beside_reference: bool = member("whether change points are those of its ratio to the baseline")
    slower: bool = member("whether it became slower from any version to the next")
    versions: Rows[Version] = member("the arms that have it", columns=version_columns("reference"))
    change_points: tuple[ChangePointObject, ...] = member("where its level changes, oldest first")
    p: float | None = member(
        "share of the orders of its versions that show as much change; null where none was looked for"
    )
    reason: str = member("why change points were not looked for; empty where they were")


@dataclass(frozen=True, kw_only=True)
class HistoryObject:
    """What `perfsweep history SWEEP... --json` prints."""

    schema: str = member(f"`{SCHEMA}`", default=SCHEMA)
    exit: int = member("the exit status: 1 where an arm became slower from any version to the next")
    unit: str = member("what times are per: one of these")
    reference: str = member("label of the baseline in the newest version")
    margin: float = member("relative change that is none")
    level: float = member("confidence of intervals")
    false_alarms: float = member("share of arms without a change that show a change point, at most")
    interleaved: bool = member("whether the versions are arms of one sweep, so that changes are paired")
    number: int = member("of versions")
    picture: str | None = member("file that `--picture` wrote")
    arms: tuple[ArmHistoryObject, ...] = member("every arm that was asked for")


def history_object(found: History, status: int, picture: str | None) -> HistoryObject:
    """Say for a program what a history found."""
    return HistoryObject(
        exit=status,
        unit=found.unit,
        reference=found.reference,
        margin=found.margin,
        level=LEVEL,
        false_alarms=ALPHA,
        interleaved=found.interleaved,
        number=found.versions,
        picture=picture,
        arms=tuple(_arm_object(one, found.reference) for one in found.arms),
    )


def _arm_object(one: ArmHistory, reference: str) -> ArmHistoryObject:
    return ArmHistoryObject(
        arm=one.arm,
        beside_reference=one.series.beside_reference,
        slower=one.slower,
        versions=Rows(version_columns(reference), one.versions),
        change_points=tuple(
            ChangePointObject(version=place, sweep=version.sweep, commit=version.commit, ratio=version.level)
            for place, version in enumerate(one.versions)
            if version.level is not None
        ),
        p=one.points.p if one.points else None,
        reason=one.reason,
    )


def csv_rows(found: History) -> Rows[Version]:
    """Put the versions of all arms into one table."""
    rows = [version for one in found.arms for version in one.versions]
    return Rows((ARM, *version_columns("reference")), rows)


def show(console: Console, found: History) -> None:
    """Print one table for each arm, and how to read them."""
    columns = version_columns(found.reference)
    for one in found.arms:
        table = Table(f"{one.arm}: time per {found.unit}", columns, one.versions)
        print_table(console, table.at(Where.TERMINAL))
    print_lines(console, [*_how_judged(found), *_about_points(found)])


def _how_judged(found: History) -> list[str]:
    beyond = f"slower and faster: the interval lies wholly beyond {found.margin:.0%} of the version before"
    if found.interleaved:
        return [f"{beyond}; the versions are arms of one sweep, and changes are paired within its rounds"]
    return [
        f"{beyond}; on another device only the ratio to {found.reference} is judged",
        "versions are not interleaved: a machine that drifted moves all arms at once",
    ]


def _about_points(found: History) -> list[str]:
    """Say where levels change, of how many arms by chance, and which arms were left out and why."""
    lines = [
        f"{one.arm}: new level from {_name(version)} on, {speed(version.level)}"
        + " against the baseline" * one.series.beside_reference
        for one in found.arms
        for version in one.versions
        if version.level is not None
    ]
    reasons: dict[str, list[str]] = {}
    for one in found.arms:
        if one.reason:
            reasons.setdefault(one.reason, []).append(one.arm)
    looked = len(found.arms) - sum(map(len, reasons.values()))
    if looked:
        lines.append(
            f"change points were looked for in {looked} of {len(found.arms)} arms; of arms that do not"
            f" change, {ALPHA:.0%} at most show one by chance, and more on a machine that drifts"
        )
    for reason, arms in reasons.items():
        named = "" if len(arms) == len(found.arms) else f" in {', '.join(arms)}"
        lines.append(f"no change points are looked for{named}: {reason}")
    return lines


def _name(version: Version) -> str:
    return f"{version.sweep} ({version.commit[:10]})" if version.commit else version.sweep


AGAINST_CSV_SCHEMA = "perfsweep.compare.against.csv/1"
"""Name and version of the rows that `compare --against ... --csv` prints."""


@dataclass(frozen=True)
class JudgedChange:
    """An arm then and now, of two sweeps; `verdict` is *slower* or empty."""

    then: str
    change: Change
    verdict: str


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
        Column(
            "bounds",
            interval,
            text=lambda one: bounds_text(one.change.ratio, one.change.low, one.change.high),
            where=Where.PEOPLE,
            kind=float,
        ),
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
        Column(
            "relative_bounds",
            interval,
            text=lambda one: bounds_text(*_relative(one)),
            where=Where.PEOPLE,
            kind=float,
            drop=1,
        ),
        own_column(
            "verdict",
            "",
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


def show_against(console: Console, every: Sequence[Changes], margin: float) -> None:
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
