"""Comparisons, reports and progress as a notebook and a prompt show them."""

from __future__ import annotations

import dataclasses
import html
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from urllib.parse import quote
from zlib import crc32

from markupsafe import Markup

from perfsweep.pipelines.analysis import compare
from perfsweep.pipelines.analysis.columns import Where
from perfsweep.pipelines.plan.tally import Ahead, News, Tally
from perfsweep.pipelines.report import terminal_table
from perfsweep.pipelines.report.progress_display import RoundsSoFar
from perfsweep.pipelines.report.sentences import (
    COMMANDS,
    conclusions,
    footnotes,
    headline,
    open_questions,
    opening,
)
from perfsweep.pipelines.report.tables import answer_tables
from perfsweep.pipelines.store.records import Event, Manifest, SweepFolder
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
    """The page of a sweep: a path wherever one is asked for; a notebook links it.

    Of a sweep that is `read_only`, as on a full disk, it lasts as long as this process, which its text says.
    """

    path: Path
    comparison: compare.Comparison = dataclasses.field(repr=False)
    read_only: Path | None = dataclasses.field(default=None, repr=False)

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        if self.read_only is None:
            return str(self.path)
        keeps = f"`perfsweep compare {self.read_only} --output DIR` keeps it and the tables there"
        return f"not kept, as {self.read_only} cannot be written; {keeps}"

    def _repr_html_(self) -> str:
        """Link the page; the tables are where the sweep or its comparison is shown."""
        path = os.path.relpath(self.path)
        words = html.escape(f"{self.comparison.name}: {headline(self.comparison)}")
        link = f'<a href="{quote(path)}" target="_blank">{html.escape(path)}</a>'
        return f"<p>{words}. With all pictures: {link}</p>"


def comparison_html(comparison: compare.Comparison) -> str:
    """Render the answer as a part of a page: the effects as a table and a picture, and the rest folded."""
    from perfsweep.pipelines.report.html import render  # with what draws pictures

    return render(
        "notebook.html.j2",
        comparison=comparison,
        opening=opening(comparison),
        conclusions=conclusions(comparison),
        commands=COMMANDS,
        questions=open_questions(comparison),
        tables=list(answer_tables(comparison, Where.HTML)),
        picture=_picture(comparison),
        footnotes=footnotes(comparison),
    )


def _picture(comparison: compare.Comparison) -> Markup:
    """Draw the effects, with names of their own among the outputs of a notebook."""
    from perfsweep.pipelines.report import svg
    from perfsweep.pipelines.report.effects_chart import chart, effect_rows

    rows = effect_rows(comparison)
    if not rows:
        return Markup("")
    name = f"effects-{crc32(repr((comparison.name, rows)).encode()):x}"
    label = f"Effects of {comparison.name}: speeds with 95 % intervals"
    return svg.one(partial(chart, rows, comparison.margin), name, label, svg.HALF)


EVERY_S = 0.5
"""Time between two updates, each of which is a message to the browser."""

Display = Callable[..., object]
"""`IPython.display.display`: takes the same content as plain text and as HTML."""


def notebook_display() -> Display | None:
    """Find what shows things in the notebook that this process is the kernel of; None where it is none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if getattr(shell, "kernel", None) is None:
        return None
    return importlib.import_module("IPython.display").display


class NotebookProgress:
    """Shows how far a sweep is, and what went wrong on the way, in one output of a cell."""

    def __init__(
        self, display: Display, manifest: Manifest, ahead: Ahead, folder: SweepFolder | None = None
    ) -> None:
        self._display, self._tally = display, Tally(manifest, ahead)
        self._rounds = RoundsSoFar(folder, manifest) if folder else None
        self._table = ""
        self._news: list[News] = []
        self._started = time.monotonic()
        self._shown = 0.0
        self._id = f"perfsweep-{id(self)}"
        self._show()

    def __call__(self, event: Event) -> None:
        """Note one finished trial."""
        news = self._tally.note(event)
        self._news += news
        found = self._rounds.after(event) if self._rounds else None
        if found:
            text = StringIO()
            terminal_table.print_table(plain_console(text), found.table)
            self._table = text.getvalue().strip()
        if news or found or time.monotonic() - self._shown > EVERY_S:
            self._show(update=True)

    def close(self) -> None:
        """Show the last count, which may be newer than what is shown."""
        self._table = ""  # what follows has all of it
        self._show(update=True)

    def _show(self, update: bool = False) -> None:
        self._shown = time.monotonic()
        line = f"{self._tally}, {self._shown - self._started:.0f} s"
        news = [one.sentence for one in self._news]
        bar = f'<progress value="{self._tally.done}" max="{self._tally.total}"></progress>'
        table = [f"<pre>{html.escape(self._table)}</pre>"] if self._table else []
        page = "<br>".join([f"{bar} {html.escape(line)}", *map(html.escape, news), *table])
        text = "\n".join(filter(None, [line, *news, self._table]))
        content = {"text/plain": text, "text/html": page}
        self._display(content, raw=True, display_id=self._id, update=update)


@contextmanager
def live(
    display: Display, manifest: Manifest, ahead: Ahead, folder: SweepFolder | None = None
) -> Iterator[NotebookProgress]:
    """Show progress in a notebook while the block runs; with the sweep's folder, what is known so far too."""
    progress = NotebookProgress(display, manifest, ahead, folder)
    try:
        yield progress
    finally:
        progress.close()
