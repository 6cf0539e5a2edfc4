"""The columns of the tables of effects and arms, each declared once for everybody who shows them.

The terminal, `report.html` and `report.md` show what `EFFECTS` and `ARMS` declare for them, `effects.parquet`
and `arms.parquet` hold it, and W&B's table of effects has the columns of `effects.parquet`. A new statistic
is a field of `EffectResult` or `ArmResult`, and one `Column` here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from typing import Any, Generic, TypeVar

import polars as pl

from pipelines.analysis.arm_results import ArmResult
from pipelines.analysis.judge import EffectResult
from pipelines.analysis.outcomes import outcome_text
from pipelines.statistics.verdicts import Verdict
from pipelines.store.records import Outcome
from pipelines.units import MB, bounds_text, duration, megabytes_more, percent

T = TypeVar("T")
"""What a row of a table shows: an effect, an arm, a claim."""


class Where(Flag):
    """Who shows a column."""

    TERMINAL = auto()
    HTML = auto()
    MARKDOWN = auto()
    FILE = auto()  # Parquet, and so W&B
    PAGES = HTML | MARKDOWN
    PEOPLE = TERMINAL | PAGES
    ALL = PEOPLE | FILE


class Style(StrEnum):
    """What a cell means to its reader: colours on a terminal, classes of the page."""

    PLAIN = ""
    GOOD = "good"
    BAD = "bad"
    ALARM = "alarm"  # bold, in Markdown too: what the row says must not be used
    OPEN = "open"
    SOFT = "soft"


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a table, whoever shows it.

    Attributes
    ----------
    key : name in the Parquet file and in W&B
    heading : name that people read; ``{unit}`` stands for the workload's unit
    value : what the file holds, of type `kind`, or None; without it the column is not in the file
    text : what people read; the value itself where there is none
    doc : one sentence about the column, shown over its heading in the page
    kind : of the values; numbers stand on the right and are never broken
    optional : shown only where any row says something
    width : characters that words keep in a narrow terminal; those of more than `SHORT` break in the page too
    drop : columns that a narrow terminal leaves out, 1 before 2; 0 stays
    style : what the cell of a row means
    """

    key: str
    heading: str
    value: Callable[[T], Any] | None = None
    text: Callable[[T], str] | None = None
    where: Where = Where.ALL
    doc: str = ""
    kind: type[str] | type[int] | type[float] = str
    optional: bool = False
    width: int = 12
    drop: int = 0
    style: Callable[[T], Style] = lambda row: Style.PLAIN

    @property
    def number(self) -> bool:
        """Whether the cells are quantities."""
        return self.kind is not str

    @property
    def short(self) -> bool:
        """Whether cells of words stand on one line in the page."""
        return self.width <= SHORT

    def cell(self, row: T) -> str:
        """What people read in a row."""
        if self.text is not None:
            return self.text(row)
        value = self.value(row) if self.value else None
        return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


SHORT = 12
NAME_WIDTH = 24
"""Characters of a name that a narrow terminal shows on one line, at the cost of other columns."""


def visible_columns(columns: Sequence[Column[T]], rows: Sequence[T], where: Where) -> tuple[Column[T], ...]:
    """Pick the columns that are for somebody; an optional one only where any row has something to say."""
    declared = [column for column in columns if where in column.where]
    return tuple(
        column for column in declared if not column.optional or any(column.cell(row) for row in rows)
    )


def parquet_table(columns: Sequence[Column[T]], rows: Sequence[T]) -> pl.DataFrame:
    """Tabulate the values of all columns that the file has; types do not depend on what the rows hold."""
    values = {column.key: column.value for column in columns if column.value and Where.FILE in column.where}
    schema = {column.key: column.kind for column in columns if column.key in values}
    return pl.DataFrame([{key: value(row) for key, value in values.items()} for row in rows], schema=schema)


def effect_name(result: EffectResult) -> str:
    """Toggle, level, and the toggles that moved along."""
    effect = result.effect
    # Listed arms carry their own name and the reference's ("vs late") instead of a toggle and its level.
    joint = " " if effect.design == "arms" else "="
    label = f"{effect.toggle}{joint}{effect.level}" if effect.level else effect.toggle
    return f"{label} (with {', '.join(effect.also)})" if effect.also else label


VERDICT_STYLES = {
    Verdict.FASTER: Style.GOOD,
    Verdict.SLOWER: Style.BAD,
    Verdict.UNDECIDED: Style.OPEN,
    Verdict.DIFFERENT: Style.ALARM,
}
"""Of verdicts that are news; the others are soft."""


def verdict_style(result: EffectResult) -> Style:
    """The style of an effect's verdict."""
    return VERDICT_STYLES.get(result.verdict, Style.SOFT) if result.verdict else Style.SOFT


def _soft(row: object) -> Style:
    return Style.SOFT


def _file(key: str, value: Callable[[T], Any], kind: type[str] | type[int] | type[float] = str) -> Column[T]:
    """A column that is written down and shown to nobody but W&B."""
    return Column(key, key, value, kind=kind, where=Where.FILE)


def _losses(result: EffectResult) -> str:
    """How the trials behind an effect ended where they did not all end alike, which the verdict would say."""
    return outcome_text(result.trials).replace(", ", "\n") if len(result.trials) > 1 else ""


def _compile_text(result: EffectResult) -> str:
    return f"{result.compile_s:.1f} s" if result.compile_s and result.compile_s >= 0.01 else ""


def _warm_compile_text(result: EffectResult) -> str:
    """Nothing where the arm compiles nothing."""
    if not _compile_text(result) or result.warm_compile_s is None:
        return ""
    return f"{result.warm_compile_s:.1f} s"


def _cpu_text(result: EffectResult) -> str:
    return f"{percent(result.cpu[0])} ({bounds_text(*result.cpu)})" if result.cpu else ""


EFFECTS: tuple[Column[EffectResult], ...] = (
    Column("name", "toggle", text=effect_name, where=Where.PEOPLE, width=NAME_WIDTH),
    _file("design", lambda r: r.effect.design),
    _file("toggle", lambda r: r.effect.toggle),
    _file("level", lambda r: r.effect.level),
    _file("also", lambda r: ", ".join(r.effect.also)),
    _file("arm", lambda r: r.arm_label),
    Column(
        "ratio",
        "time",
        lambda r: r.ratio,
        lambda r: percent(r.ratio),
        doc="time of the arm against its base: less is faster",
        kind=float,
    ),
    _file("low", lambda r: r.low, float),
    _file("high", lambda r: r.high, float),
    Column(
        "interval",
        "95 % interval",
        text=lambda r: bounds_text(r.ratio, r.low, r.high),
        where=Where.PEOPLE,
        doc="where that ratio lies, from the pairs of each round",
        kind=float,
    ),
    Column(
        "verdict",
        "verdict",
        lambda r: r.verdict.value if r.verdict else None,
        lambda r: r.word,
        doc="what the interval says, or why there is no time",
        width=10,
        style=verdict_style,
    ),
    _file("outcome", lambda r: r.outcome),
    Column(
        "parity",
        "results",
        lambda r: r.parity.verdict.value if r.parity else None,
        lambda r: r.parity_text,
        doc="parity with the base",
        width=10,
    ),
    _file("parity_worst", lambda r: r.parity.worst.value if r.parity and r.parity.worst else None, float),
    _file(
        "parity_where",
        lambda r: f"{r.parity.worst.check} {r.parity.worst.where}" if r.parity and r.parity.worst else None,
    ),
    Column(
        "cpu_ratio",
        "CPU time",
        lambda r: r.cpu[0] if r.cpu else None,
        _cpu_text,
        where=Where.PAGES | Where.FILE,
        doc="the same in processor time of the process, which holds still on a shared machine",
        kind=float,
        optional=True,
    ),
    _file("cpu_low", lambda r: r.cpu[1] if r.cpu else None, float),
    _file("cpu_high", lambda r: r.cpu[2] if r.cpu else None, float),
    Column(
        "memory_bytes",
        "memory",
        lambda r: r.memory_bytes,
        lambda r: megabytes_more(r.memory_bytes),
        doc="change of peak memory",
        kind=float,
        drop=4,
    ),
    Column(
        "compile_s",
        "compile",
        lambda r: r.compile_s,
        _compile_text,
        doc="seconds of compiling with nothing compiled yet",
        kind=float,
        optional=True,
        drop=2,
    ),
    Column(
        "warm_compile_s",
        "warm",
        lambda r: r.warm_compile_s,
        _warm_compile_text,
        doc="seconds of compiling in a process that finds on disk what the sweep has compiled",
        kind=float,
        optional=True,
        drop=1,
    ),
    _file("break_even_iterations", lambda r: r.break_even, float),
    Column(
        "base",
        "base",
        lambda r: r.base_label,
        where=Where.PAGES | Where.FILE,
        doc="the arm that it is measured against",
        width=NAME_WIDTH,
        style=_soft,
    ),
    Column(
        "rounds",
        "rounds",
        lambda r: r.rounds,
        lambda r: str(r.rounds or ""),
        where=Where.PAGES | Where.FILE,
        doc="pairs that the interval rests on",
        kind=int,
    ),
    Column(
        "trials",
        "trials",
        text=lambda r: outcome_text(r.trials),
        where=Where.PAGES,
        doc="how the trials behind the row ended, of every kind and attempt",
    ),
    Column("losses", "trials", text=_losses, where=Where.TERMINAL, optional=True, width=9, drop=3),
    Column(
        "method",
        "method",
        lambda r: r.method,
        where=Where.HTML | Where.FILE,
        doc="how the interval was estimated",
        style=_soft,
    ),
    _file("p", lambda r: r.p, float),
    _file("rulings", lambda r: "; ".join(f"{claim.section}: {ruling}" for claim, ruling in r.rulings)),
    _file("note", lambda r: r.note),
    _file("id", lambda r: r.effect.id),
)
"""Of one effect each row: an arm against its base, or an interaction."""

SHOWN_PHASES = 6


def _phases_text(arm: ArmResult) -> str:
    """The longest phases with their time per unit; those under a hundredth of the whole are left out."""
    least = (arm.ns_per_unit or 0.0) / 100
    longest = [share for share in arm.phases if share.ns_per_unit >= least][:SHOWN_PHASES]
    return ", ".join(
        f"{share.phase} {duration(share.ns_per_unit)}{' (device)' * (share.on == 'device')}"
        for share in longest
    )


def _trials_ended(outcome: Outcome) -> Column[ArmResult]:
    return _file(outcome.value, lambda arm: arm.outcomes.get(outcome.value, 0), int)


ARMS: tuple[Column[ArmResult], ...] = (
    Column("name", "arm", lambda arm: arm.name, lambda arm: arm.name or arm.label, width=NAME_WIDTH),
    Column(
        "label",
        "levels",
        lambda arm: arm.label,
        lambda arm: "" if arm.name in ("", arm.label) else arm.label,
        where=Where.HTML | Where.FILE,
        doc="what sets an arm with a name of its own apart from the baseline",
        optional=True,
        width=NAME_WIDTH,
        style=_soft,
    ),
    Column(
        "ns_per_unit",
        "time per {unit}",
        lambda arm: arm.ns_per_unit,
        lambda arm: duration(arm.ns_per_unit) if arm.ns_per_unit else "",
        doc="median of the rounds",
        kind=float,
    ),
    Column(
        "iteration_ns",
        "median iteration",
        lambda arm: arm.iteration_ns,
        lambda arm: duration(arm.iteration_ns) if arm.iteration_ns else "",
        kind=float,
    ),
    Column(
        "phases",
        "phases, per {unit}",
        text=_phases_text,
        where=Where.PAGES,
        doc="where the time goes, as far as the workload marks it",
        width=NAME_WIDTH,
        style=_soft,
    ),
    Column(
        "rounds",
        "rounds",
        lambda arm: arm.rounds,
        lambda arm: str(arm.rounds or ""),
        where=Where.HTML | Where.FILE,
        kind=int,
    ),
    Column(
        "peak_bytes",
        "peak memory",
        lambda arm: arm.peak_bytes,
        lambda arm: f"{arm.peak_bytes / MB:.0f} MB" if arm.peak_bytes else "",
        kind=int,
    ),
    Column(
        "mfu",
        "MFU",
        lambda arm: arm.mfu,
        lambda arm: "" if arm.mfu is None else f"{arm.mfu:.1%}",
        doc="model FLOPs by the device's peak",
        kind=float,
        optional=True,
    ),
    Column(
        "trials",
        "trials",
        text=lambda arm: outcome_text(arm.outcomes),
        where=Where.PAGES,
        doc="how all trials of the arm ended",
        width=NAME_WIDTH,
    ),
    *(_trials_ended(outcome) for outcome in Outcome),
    _file("arm", lambda arm: arm.id),
)
"""Of one arm each row."""
