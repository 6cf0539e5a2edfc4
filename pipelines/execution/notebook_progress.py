"""What a notebook shows while its kernel measures a sweep: one output that is updated in place."""

from __future__ import annotations

import html
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perfsweep.pipelines.execution.progress_display import Ahead, News, Tally
from perfsweep.pipelines.store.records import Event, Manifest

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

    def __init__(self, display: Display, manifest: Manifest, ahead: Ahead) -> None:
        self._display, self._tally = display, Tally(manifest, ahead)
        self._news: list[News] = []
        self._started = time.monotonic()
        self._shown = 0.0
        self._id = f"perfsweep-{id(self)}"
        self._show()

    def __call__(self, event: Event) -> None:
        """Note one finished trial."""
        news = self._tally.note(event)
        self._news += news
        if news or time.monotonic() - self._shown > EVERY_S:
            self._show(update=True)

    def close(self) -> None:
        """Show the last count, which may be newer than what is shown."""
        self._show(update=True)

    def _show(self, update: bool = False) -> None:
        self._shown = time.monotonic()
        line = f"{self._tally}, {self._shown - self._started:.0f} s"
        news = [one.sentence for one in self._news]
        bar = f'<progress value="{self._tally.done}" max="{self._tally.total}"></progress>'
        page = "<br>".join([f"{bar} {html.escape(line)}", *map(html.escape, news)])
        content = {"text/plain": "\n".join([line, *news]), "text/html": page}
        self._display(content, raw=True, display_id=self._id, update=update)


@contextmanager
def live(display: Display, manifest: Manifest, ahead: Ahead) -> Iterator[NotebookProgress]:
    """Show progress in a notebook while the block runs."""
    progress = NotebookProgress(display, manifest, ahead)
    try:
        yield progress
    finally:
        progress.close()
