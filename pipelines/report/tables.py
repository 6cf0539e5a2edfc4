"""The tables of a comparison: for people on terminal, page and in Markdown, for programs as JSON and CSV.

The columns of the tables of effects and arms are declared in `perfsweep.pipelines.analysis`; the columns of
the smaller tables next to them are declared here. An object for programs is a dataclass, whose fields are
declared once, by `member`: what is printed and docs/json.md are both read from that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic

import click

from perfsweep.pipelines.analysis.arm_records import CounterChange
from perfsweep.pipelines.analysis.arm_results import ArmResult, Quality
from perfsweep.pipelines.analysis.columns import (
    NAME_WIDTH,
    PROSE,
    Column,
    Style,
    T,
    Where,
    parquet_table,
    row_values,
    soft,
    visible_columns,
)
from perfsweep.pipelines.analysis.combinations import AloneAndBeside, Corners, Gain, Part
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_result import (
    IN_ORDER,
    EffectResult,
    RuledClaim,
    by_todo,
    effect_name,
    size,
    todo,
)
from perfsweep.pipelines.analysis.exclusions import BASE
from perfsweep.pipelines.analysis.failed_trials import FAILURES
from perfsweep.pipelines.analysis.quantity_results import Quantity, arm_table, effect_table
from perfsweep.pipelines.store.schema import PLACEBO, Outcome
from perfsweep.pipelines.units import speed
from perfsweep.workloads.errors import harmless


@dataclass(frozen=True)
class Table(Generic[T]):
    """Rows with the columns that show them; `caption` says how to read them, `group` is a row's heading."""

    title: str
    columns: tuple[Column[T], ...]
    rows: tuple[T, ...]
    caption: str = ""
    group: Callable[[T], str] | None = None

    def grouped(self) -> Iterator[tuple[str, list[T]]]:
        """The rows below the heading of their group; all of them below none where there are no groups."""
        for heading, rows in groupby(self.rows, self.group or (lambda row: "")):
            yield heading, list(rows)

    @property
    def of_effects(self) -> bool:
        """Whether the rows are effects: these tables come first, and what follows from them next."""
        return any(isinstance(row, EffectResult) for row in self.rows[:1])

    def at(self, where: Where) -> Table[T]:
        """The same with the columns for a kind of reader."""
        return replace(self, columns=visible_columns(self.columns, self.rows, where))


def table_of(
    title: str, headings: Sequence[str], rows: Iterable[tuple[str, ...]], numbers: Sequence[str] = ()
) -> Table[tuple[str, ...]]:
    """Tabulate cells that are text already; the columns in `numbers` are aligned right and never break."""
    columns: tuple[Column[tuple[str, ...]], ...] = tuple(
        Column(
            heading,
            heading,
            text=itemgetter(place),
            kind=float if heading in numbers else str,
            width=NAME_WIDTH,
        )
        for place, heading in enumerate(headings)
    )
    return Table(title, columns, tuple(rows))


def answer_tables(comparison: Comparison, where: Where) -> Iterator[Table]:
    """Everything that answers the sweep's question: effects by design first, then related tables."""
    effects = [
        effects_table(f"Effects: {title}", results, comparison.quantities, where)
        for title, results in effects_by_design(comparison.effects)
    ]
    effects += [
        effects_table(f"On {part.machine}: {title}", results, comparison.quantities, where)
        for part in comparison.elsewhere
        for title, results in effects_by_design(part.effects)
    ]
    beside = (
        *map(_parts_table, comparison.parts),
        Table("Two toggles at a time", CORNERS, comparison.corners),
        Table("Alone and with the others", ALONE_AND_BESIDE, comparison.alone_and_beside, ALONE_CAPTION),
        Table("Against the oracle", oracle_columns(comparison.quality), _oracle_rows(comparison, where)),
        Table("Claims", claim_columns(comparison), comparison.rulings),
        Table("Failed trials", FAILURES, comparison.failures),
    )
    for table in (one.at(where) for one in (*effects, *beside) if one.rows):
        if table.columns:
            yield table


def _parts_table(part: Part) -> Table[Gain]:
    """Gains, each with the part of it that is a step from one baseline to another."""
    step = size(part.step) if part.step else ""
    columns: tuple[Column[Gain], ...] = (
        Column("arm", "arm", text=lambda one: one.arm, width=NAME_WIDTH),
        Column("whole", f"against {part.start}", text=lambda one: size(one.whole), width=NAME_WIDTH),
        Column("method", "method", text=lambda one: size(one.method), width=NAME_WIDTH),
        Column("part", part.name, text=lambda one: step, width=NAME_WIDTH),
    )
    caption = (
        f"Method: the arm against {part.end}. {part.name.capitalize()}: {part.end} against {part.start}."
    )
    return Table(f"Parts of each gain: method and {part.name}", columns, part.gains, caption)


def _oracle_rows(comparison: Comparison, where: Where) -> tuple[Quality, ...]:
    """Arms with their deviations; a terminal has the table only where one is beyond a limit."""
    broken = any(not one.holds for row in comparison.quality for one in row.deviations)
    return comparison.quality if broken or where is not Where.TERMINAL else ()


def effects_table(
    title: str, results: Sequence[EffectResult], quantities: tuple[Quantity, ...], where: Where
) -> Table[EffectResult]:
    """Tabulate effects of one design; headings say what to do about them where rows are in no order."""
    columns = effect_table(quantities)
    in_order = any(one.effect.design in IN_ORDER for one in results)
    if not in_order and where is Where.TERMINAL:
        columns = tuple(column for column in columns if column.key != "verdict")
    if len({effect_name(result) for result in results}) < len(results):  # against several baselines
        columns = tuple(replace(one, where=Where.ALL) if one.key == "base" else one for one in columns)
    group = None if in_order else heading
    return Table(title, columns, tuple(results), _methods(results), group).at(where)


def heading(result: EffectResult) -> str:
    """What a reader is told to do about an effect."""
    return todo(result).upper()


def _methods(results: Sequence[EffectResult]) -> str:
    """How the intervals of a table were estimated."""
    methods = dict.fromkeys(result.method for result in results if result.low is not None)
    return f"Intervals: {', '.join(methods)}." if methods else ""


def arms_table(comparison: Comparison, where: Where) -> Table[ArmResult]:
    """Every arm by itself."""
    named = (
        replace(column, heading=column.heading.format(unit=comparison.unit))
        for column in arm_table(comparison.quantities)
    )
    return Table("Arms", tuple(named), comparison.arms).at(where)


def changes_table(comparison: Comparison) -> Table[tuple[str, CounterChange]]:
    """Counters by which arms differ from the baseline, the first of each with the name of its arm."""
    rows = (
        ("" if place else arm.name or arm.label, change)
        for arm in comparison.arms
        for place, change in enumerate(arm.changes)
    )
    return Table("Counters that differ from the baseline's", CHANGES, tuple(rows))


def effects_by_design(effects: Sequence[EffectResult]) -> list[tuple[str, list[EffectResult]]]:
    """Effects in the designs' order, each design with its title, those of use first.

    Listed arms come in a table for each baseline that they are measured against; none for one that cannot
    act here, as its own row says.
    """
    kinds: dict[tuple[str, str], list[EffectResult]] = {}
    for result in effects:
        listed = result.effect.design == "arms" and result.effect.reference
        against = f" against {result.effect.reference}" if listed else ""
        if not lacks_baseline(result):
            kinds.setdefault((result.effect.design, against), []).append(result)
    several = sum(bool(against) for _, against in kinds) > 1
    return [
        (design_title(design) + against * several, _in_order(design, results))
        for (design, against), results in kinds.items()
    ]


def lacks_baseline(result: EffectResult) -> bool:
    """Whether a listed arm has no time for its baseline alone, which cannot act here."""
    return result.effect.design == "arms" and result.outcome == BASE + Outcome.UNSUPPORTED.value


def design_title(design: str) -> str:
    """A design as people read it: ``one at a time``."""
    return design.replace("_", " ")


def _in_order(design: str, effects: list[EffectResult]) -> list[EffectResult]:
    return effects if design in IN_ORDER else by_todo(effects)


def has_several_designs(comparison: Comparison) -> bool:
    """Whether one level may be in several tables, so that a line about it has to say which is meant."""
    return len({result.effect.design for result in comparison.effects} - {PLACEBO}) > 1


def _count(value: float) -> str:
    return f"{value:,.6g}"


CHANGES: tuple[Column[tuple[str, CounterChange]], ...] = (
    Column("arm", "arm", text=itemgetter(0), width=NAME_WIDTH),
    Column("counter", "counter", text=lambda one: one[1].counter, width=NAME_WIDTH),
    Column("reference", "baseline", text=lambda one: _count(one[1].reference), kind=float),
    Column("value", "arm", text=lambda one: _count(one[1].value), kind=float),
)
"""Of one counter each row."""


CORNERS: tuple[Column[Corners], ...] = (
    Column("toggles", "toggles", text=lambda one: one.name, where=Where.MARKDOWN, width=NAME_WIDTH),
    Column("first", "the first alone", text=lambda one: speed(one.first), where=Where.MARKDOWN),
    Column("second", "the second alone", text=lambda one: speed(one.second), where=Where.MARKDOWN),
    Column("both", "both", text=lambda one: speed(one.both), where=Where.MARKDOWN),
    Column("expected", "expected of both", text=lambda one: speed(one.expected), where=Where.MARKDOWN),
)
"""Of one interaction each row, against the arm with neither; the page draws them."""


ALONE_AND_BESIDE: tuple[Column[AloneAndBeside], ...] = (
    Column("toggle", "toggle", text=lambda one: effect_name(one.beside), width=NAME_WIDTH),
    Column("alone", "alone", text=lambda one: speed(one.alone.ratio) if one.alone else "", kind=float),
    Column(
        "alone_verdict", "verdict", text=lambda one: one.alone.word if one.alone else "not measured alone"
    ),
    Column("beside", "with the others", text=lambda one: speed(one.beside.ratio), kind=float),
    Column("beside_verdict", "verdict", text=lambda one: one.beside.word),
    Column("reading", "so it", text=lambda one: one.reading, width=PROSE),
)
"""Of one level each row; "with the others" is what leaving it out would lose."""

ALONE_CAPTION = (
    "Alone: one toggle at a time on the baseline. With the others: the best arm against itself without the"
    " toggle."
)


def oracle_columns(quality: Sequence[Quality]) -> tuple[Column[Quality], ...]:
    """One column for each oracle check that any arm has a value of, under the bound that it is held to."""
    bounds = {one.check: one.bound for row in quality for one in row.deviations}
    arm: Column[Quality] = Column("arm", "arm", text=lambda row: row.arm.replace(",", ", "), width=NAME_WIDTH)
    return (arm, *(_oracle_column(check, bound) for check, bound in bounds.items()))


def _oracle_column(check: str, bound: float) -> Column[Quality]:
    def text(row: Quality) -> str:
        return next((f"{one.value:.2g}" for one in row.deviations if one.check == check), "")

    def style(row: Quality) -> Style:
        fails = any(one.check == check and not one.holds for one in row.deviations)
        return Style.ALARM if fails else Style.PLAIN

    heading = (
        f"{check.replace('_', ' ')} <=\u00a0{bound:.2g}"  # a bound stays with its sign where headings fold
    )
    return Column(check, heading, text=text, kind=float, style=style)


def claim_columns(comparison: Comparison) -> tuple[Column[RuledClaim], ...]:
    """What was ruled on: the levels, and the design where there are several; the claim, and its ruling."""
    several = has_several_designs(comparison)

    def subject(one: RuledClaim) -> str:
        return f"{one.subject} ({design_title(one.design)})" if several else one.subject

    return (
        Column("about", "about", text=subject, width=NAME_WIDTH),
        Column("claim", "claim", text=lambda one: one.claim.text, width=PROSE),
        Column(
            "source",
            "source",
            text=lambda one: f"{one.claim.source}, {one.claim.section}",
            width=NAME_WIDTH,
            drop=1,
            style=soft,
        ),
        Column("ruling", "ruling", text=lambda one: one.text, width=NAME_WIDTH),
    )


@dataclass(frozen=True)
class Rows(Generic[T]):
    """Rows of a table, which become a list of objects: a field for each column that is written down."""

    columns: tuple[Column[T], ...]
    rows: Sequence[T]


def member(doc: str, *, columns: tuple[Column, ...] = (), **rest: Any) -> Any:
    """Declare a field of an object; of `Rows`, with the columns that they have."""
    return field(metadata={"doc": doc, "columns": columns}, **rest)


def as_json(value: Any) -> Any:
    """Turn a value into what JSON knows; numbers that JSON has no word for, NaN and infinity, become null."""
    if isinstance(value, Rows):
        return [as_json(row_values(value.columns, row)) for row in value.rows]
    if is_dataclass(value):
        return {one.name: as_json(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.value if isinstance(value, Enum) else str(value) if isinstance(value, Path) else value


def print_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    click.echo(json.dumps(as_json(value), indent=2, allow_nan=False))


def print_csv(schema: str, table: Rows) -> None:
    """Print rows as CSV on stdout, under a line of names; the first column says which schema they have."""
    import polars as pl  # takes a second, and JSON needs none

    numbers = pl.col(pl.Float64)
    finite = pl.when(numbers.is_finite()).then(numbers).otherwise(None)
    written = parquet_table(table.columns, table.rows).with_columns(finite)
    click.echo(harmless(written.select(pl.lit(schema).alias("schema"), pl.all()).write_csv()), nl=False)
