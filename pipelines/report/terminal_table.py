"""Comparison -> terminal: at any width, columns are shown whole or left out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from rich import box
from rich import table as rich_table
from rich.console import Console
from rich.text import Text

from perfsweep.pipelines.analysis.columns import NAME_WIDTH, Column, Style, T, Where
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.report.sentences import COMMANDS, conclusions, footnotes, headline, open_questions
from perfsweep.pipelines.report.tables import Table, answer_tables

STYLES = {
    Style.PLAIN: "",
    Style.GOOD: "green",
    Style.BAD: "red",
    Style.ALARM: "bold red",
    Style.OPEN: "yellow",
    Style.SOFT: "dim",
}
BETWEEN_COLUMNS = 2
EDGES = 1
HEADING_WIDTH = 10
"""Characters of a heading that stay on one line, however narrow the quantities below it are."""
LEAST_WORDS = 11
"""Characters that a column of words keeps in the narrowest terminal: *unsupported*."""


def show(console: Console, comparison: Comparison) -> None:
    """Print the answer, the tables and the notes; readable at 80 columns."""
    console.print(f"\n{comparison.name}: {headline(comparison)}", highlight=False)
    for line in comparison.noise:
        console.print(f"! {line}", style="yellow", highlight=False)
    tables = list(answer_tables(comparison, Where.TERMINAL))
    for table in (one for one in tables if one.of_effects):
        print_table(console, table)
    print_lines(console, open_questions(comparison))
    for label, text in conclusions(comparison):
        console.print(Text.assemble((f"{label}: ", "bold"), text), soft_wrap=label in COMMANDS)
    for table in (one for one in tables if not one.of_effects):
        print_table(console, table)
    for failed in comparison.failures:
        line = f"{failed.arm}: {failed.where}" if failed.where else failed.arm
        console.print(line, f"log: {failed.log}", sep="\n  ", soft_wrap=True, highlight=False, markup=False)
    print_lines(console, footnotes(comparison))


def print_lines(console: Console, lines: Sequence[str]) -> None:
    """Print sentences as a list."""
    for line in lines:
        console.print(f"- {line}", highlight=False)


def print_table(console: Console, table: Table) -> None:
    """Print a table; the least important columns that do not fit are left out and named."""
    columns = fitting_columns(table.columns, table.rows, console.width)
    console.print(drawn(table, columns, console.width))
    if missing := [column.heading for column in table.columns if column not in columns]:
        console.print(f"(too narrow for: {', '.join(missing)})", style="dim", highlight=False)


def drawn(table: Table[T], columns: Sequence[Column[T]], room: int) -> rich_table.Table:
    """Some columns of a table, ready to be printed in `room` characters."""
    printed = plain_table(table.title)
    for column, width in zip(columns, _widths(columns, table, room), strict=True):
        printed.add_column(
            Text(_heading(column, table.rows)),
            width=width,
            justify="right" if column.number else "left",
            overflow="fold",  # no digit is cut off, however narrow the terminal
        )
    for heading, rows in table.grouped():
        if heading:
            printed.add_row(Text(heading, "bold"))
        for row in rows:
            printed.add_row(*(Text(column.cell(row), STYLES[column.style(row)]) for column in columns))
    return printed


def plain_table(title: str) -> rich_table.Table:
    """An empty table in the style of all tables on the terminal: a line below the headings only."""
    return rich_table.Table(
        title=Text(f"\n{title}"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def fitting_columns(columns: Sequence[Column[T]], rows: Sequence[T], room: int) -> list[Column[T]]:
    """The columns that a terminal of `room` characters shows without breaking their words."""
    kept = list(columns)
    for column in sorted((one for one in columns if one.drop), key=lambda one: one.drop):
        if _total(_least_width(one, rows) for one in kept) <= room:
            break
        kept.remove(column)
    return kept


def _widths(columns: Sequence[Column[T]], table: Table[T], room: int) -> list[int]:
    """Characters of each column: its least width; what remains goes to words, the shortest lack first."""
    rows, groups = table.rows, [heading for heading, _ in table.grouped()]
    widths = [_least_width(column, rows) for column in columns]
    words = [place for place, column in enumerate(columns) if not column.number]
    for place in sorted(words, key=lambda place: widths[place], reverse=True):  # names first
        lacking = max(0, _total(widths) - room)
        widths[place] -= min(lacking, max(0, widths[place] - LEAST_WORDS))
    spare = max(0, room - _total(widths))
    whole = [_longest(column.heading, *(column.cell(row) for row in rows)) for column in columns]
    whole[0] = max(whole[0], _longest(*groups))  # group headings are in the first column
    for place in sorted(words, key=lambda place: whole[place] - widths[place]):  # short words first
        more = min(max(0, whole[place] - widths[place]), spare)
        widths[place], spare = widths[place] + more, spare - more
    return widths


def _total(widths: Iterable[int]) -> int:
    numbers = list(widths)
    return sum(numbers) + BETWEEN_COLUMNS * len(numbers) + EDGES


def _least_width(column: Column[T], rows: Sequence[T]) -> int:
    cells = [column.cell(row) for row in rows]
    if column.number:
        return _longest(_heading(column, rows), *cells)
    words = (word for text in (column.heading, *cells) for word in text.split())
    return max(min(_longest(*words), NAME_WIDTH), min(_longest(*cells), column.width))


def _heading(column: Column[T], rows: Sequence[T]) -> str:
    """The heading; above quantities it is folded to about their width."""
    if not column.number:
        return column.heading
    width = max(HEADING_WIDTH, _longest(*(column.cell(row) for row in rows)))
    return textwrap.fill(column.heading, width, break_long_words=False)


def _longest(*texts: str) -> int:
    """Characters of the longest line."""
    return max((len(line) for text in texts for line in text.split("\n")), default=0)
