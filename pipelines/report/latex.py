"""The tables of effects as LaTeX: plain tabulars that need no package."""

from __future__ import annotations

import re

from perfsweep.pipelines.analysis.columns import Where
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.report.sentences import headline
from perfsweep.pipelines.report.tables import Table, answer_tables

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "\u00a0": "~",
    "\n": ", ",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_SPECIAL = re.compile("|".join(map(re.escape, _ESCAPES)))


def effects_latex(comparison: Comparison) -> str:
    """Write each table of effects as a tabular, with what was measured as a comment above."""
    tables = [table for table in answer_tables(comparison, Where.TERMINAL) if table.of_effects]
    head = " ".join(f"{comparison.name}: {headline(comparison)}".split())
    return "\n\n".join([f"% {head}", *map(latex_table, tables)]) + "\n"


def latex_table(table: Table) -> str:
    """Write a table's rows under its headings; numbers on the right."""
    columns = table.columns
    lines = [f"% {' '.join(table.title.split())}"]
    lines += [f"\\begin{{tabular}}{{{''.join('r' if one.number else 'l' for one in columns)}}}", r"\hline"]
    lines += [_row([escaped(one.heading) for one in columns]), r"\hline"]
    for heading, rows in table.grouped():
        if heading:
            lines += [f"\\multicolumn{{{len(columns)}}}{{l}}{{\\textbf{{{escaped(heading)}}}}} \\\\"]
        lines += [_row([escaped(one.cell(row)) for one in columns]) for row in rows]
    return "\n".join([*lines, r"\hline", r"\end{tabular}"])


def _row(cells: list[str]) -> str:
    # A row that begins with a bracket would be read as the spacing of the row before it.
    return " & ".join("{}" + cell if cell.startswith("[") else cell for cell in cells) + r" \\"


def escaped(text: str) -> str:
    """Write a text so that LaTeX prints it as it is."""
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], text)
