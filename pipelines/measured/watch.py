"""Watches of a running sweep, which are told of its progress: silent, in a notebook, or of a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

from perfsweep.pipelines.measured.sweeps import Planned
from perfsweep.pipelines.plan.tally import trials_ahead
from perfsweep.pipelines.report import notebook
from perfsweep.pipelines.report.notebook import Display
from perfsweep.pipelines.store.records import Event


class Watch:
    """Is told of the progress while a sweep is measured; this class shows nothing."""

    def begins(self, planned: Planned, unfinished: Mapping[str, int]) -> None:
        """Called with what will be measured: unfinished rounds by pack."""

    def trials(
        self, planned: Planned, unfinished: Mapping[str, int]
    ) -> AbstractContextManager[Callable[[Event], None]]:
        """Enter a context while packs run; it gives the function that is called after each trial."""
        return nullcontext(lambda event: None)

    def counts(self, text: str) -> None:
        """Called when the numbers of running and waiting jobs change, with the reasons why they wait."""

    def notice(self, text: str) -> None:
        """Called with a sentence, such as that a job was submitted again."""


class NotebookWatch(Watch):
    """Shows the progress of a sweep in a notebook."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._counted = False

    def trials(
        self, planned: Planned, unfinished: Mapping[str, int]
    ) -> AbstractContextManager[Callable[[Event], None]]:
        """Show a progress bar while packs run."""
        manifest = planned.sweep.manifest
        ahead = trials_ahead(manifest, dict(unfinished))
        return notebook.live(self._display, manifest, ahead, planned.sweep.folder)

    def counts(self, text: str) -> None:
        """Show how many jobs run and wait, in one line that is updated."""
        self._display({"text/plain": text}, raw=True, display_id=f"jobs-{id(self)}", update=self._counted)
        self._counted = True

    def notice(self, text: str) -> None:
        """Show a sentence that the user should not miss."""
        self._display({"text/plain": text}, raw=True)


def watch_here() -> Watch:
    """The watch for this process: shows progress if it is the kernel of a notebook, else nothing."""
    display = notebook.notebook_display()
    return NotebookWatch(display) if display else Watch()
