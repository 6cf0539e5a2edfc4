"""Comparisons and reports as a notebook and a prompt show them."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from perfsweep.pipelines.analysis import compare
from perfsweep.pipelines.analysis.columns import Where
from perfsweep.pipelines.report import terminal_table
from perfsweep.pipelines.report.sentences import answer, footnotes, opening
from perfsweep.pipelines.report.tables import answer_tables
from perfsweep.pipelines.report.templates import render
from perfsweep.pipelines.terminal import plain_console


@dataclass(frozen=True, repr=False)
class Comparison(compare.Comparison):
    """The answer of a sweep; it shows its tables."""

    @classmethod
    def of(cls, comparison: compare.Comparison) -> Comparison:
        """Make one of what comparing found."""
        return cls(**{one.name: getattr(comparison, one.name) for one in dataclasses.fields(comparison)})

    def __repr__(self) -> str:
        shown = StringIO()
        terminal_table.show(plain_console(shown), self)
        return shown.getvalue().strip()

    def _repr_html_(self) -> str:
        return comparison_html(self)


@dataclass(frozen=True)
class Report(os.PathLike[str]):
    """The page of a sweep: a path wherever one is asked for; a notebook shows its tables and links it."""

    path: Path
    comparison: compare.Comparison = dataclasses.field(repr=False)

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def _repr_html_(self) -> str:
        return comparison_html(self.comparison, self.path)


def comparison_html(comparison: compare.Comparison, page: Path | None = None) -> str:
    """Render the answer and its tables as a part of a page, with a link to the whole report."""
    return render(
        "notebook.html.j2",
        comparison=comparison,
        opening=opening(comparison),
        answer=answer(comparison),
        tables=list(answer_tables(comparison, Where.HTML)),
        footnotes=footnotes(comparison),
        link=os.path.relpath(page) if page else "",
    )
