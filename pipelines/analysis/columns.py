"""Columns of tables, each declared once for all code that shows the table or writes it into a file.

Those of effects are in `effect_columns`, those of arms in `arm_results`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")
"""What a row of a table shows: an effect, an arm, a claim."""


ValueType = type[str] | type[int] | type[float] | type[bool]
"""Of the values of a column."""


class Where(Flag):
    """Who shows a column."""

    TERMINAL = auto()
    HTML = auto()
    MARKDOWN = auto()
    FILE = auto()  # Parquet, JSON and CSV, and so W&B
    PAGES = HTML | MARKDOWN
    PEOPLE = TERMINAL | PAGES
    WIDE = PAGES | FILE
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
    """One column of a table, the same on every surface.

    Attributes
    ----------
    key : name in the Parquet file and in W&B
    heading : name that people read; ``{unit}`` is replaced by the workload's unit
    value : what the file holds, of type `kind`, or None; without it the column is not in the file
    text : what people read; the value itself where there is none
    doc : one sentence about the column, shown over its heading in the page, and in docs/json.md
    kind : of the values; numbers are aligned to the right and never broken
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
    kind: ValueType = str
    optional: bool = False
    width: int = 12
    drop: int = 0
    style: Callable[[T], Style] = lambda row: Style.PLAIN

    @property
    def number(self) -> bool:
        """Whether the cells are quantities."""
        return self.kind in (int, float)

    @property
    def short(self) -> bool:
        """Whether cells of words stay on one line in the page."""
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

ON_GPU = "of an arm measured on a CPU: `yes`, `as graphs` that are replayed, or `CPU only`"
"""What the column `on_gpu` says, of effects and arms."""

PROSE = 40
"""Characters that a narrow terminal keeps of a sentence's line."""


def visible_columns(columns: Sequence[Column[T]], rows: Sequence[T], where: Where) -> tuple[Column[T], ...]:
    """Pick the columns for a kind of reader; an optional one only where any row has a value."""
    declared = [column for column in columns if where in column.where]
    return tuple(
        column for column in declared if not column.optional or any(column.cell(row) for row in rows)
    )


def parquet_table(columns: Sequence[Column[T]], rows: Sequence[T]) -> pl.DataFrame:
    """Tabulate the values of all columns that the file has; types do not depend on what the rows hold."""
    import polars as pl  # takes a second, and what is only shown needs none

    values = {column.key: column.value for column in file_columns(columns) if column.value}
    schema = {column.key: column.kind for column in columns if column.key in values}
    return pl.DataFrame([{key: value(row) for key, value in values.items()} for row in rows], schema=schema)


def file_columns(columns: Sequence[Column[T]]) -> tuple[Column[T], ...]:
    """Pick the columns that are written down: those of Parquet, JSON and CSV."""
    return tuple(column for column in columns if column.value and Where.FILE in column.where)


def row_values(columns: Sequence[Column[T]], row: T) -> dict[str, Any]:
    """Read what is written down of a row; None where there is nothing, NaN or infinity."""
    values = {column.key: column.value(row) for column in file_columns(columns) if column.value}
    return {key: None if _is_no_number(value) else value for key, value in values.items()}


def _is_no_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def file_column(key: str, value: Callable[[T], Any], kind: ValueType = str, doc: str = "") -> Column[T]:
    """Declare a column that is written down: in Parquet, JSON and CSV, and so in W&B; no page shows it."""
    return Column(key, key, value, kind=kind, where=Where.FILE, doc=doc)


def own_column(name: str, heading: str, shown: Callable[[Any], str] = str, **looks: Any) -> Column[Any]:
    """Declare a column of the field or property that a row has by this name; of None nothing is shown."""
    value = attrgetter(name)
    return Column(name, heading, value, lambda row: "" if value(row) is None else shown(value(row)), **looks)


def some(shown: Callable[[Any], str]) -> Callable[[Any], str]:
    """Show nothing of zero."""
    return lambda value: shown(value) if value else ""


def soft(row: object) -> Style:
    """The style of what only explains the rest of a row."""
    return Style.SOFT
