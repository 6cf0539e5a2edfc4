"""What hears how far a sweep is while it is measured: nothing, a notebook, or the display of a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

from perfsweep.pipelines.measured.sweeps import Planned
from perfsweep.pipelines.plan.tally import trials_ahead
from perfsweep.pipelines.report import notebook
from perfsweep.pipelines.report.notebook import Display
from perfsweep.pipelines.store.records import Event


class Watch:
    """What is told of a sweep while it is measured; this one keeps silent."""

    def begins(self, planned: Planned, unfinished: Mapping[str, int]) -> None:
        """Hear what will be measured: unfinished rounds by pack."""

    def trials(
        self, planned: Planned, unfinished: Mapping[str, int]
    ) -> AbstractContextManager[Callable[[Event], None]]:
        """Open what hears of each trial that ends, for as long as packs run."""
        return nullcontext(lambda event: None)

    def counts(self, text: str) -> None:
        """Hear how many jobs run and wait on a cluster, and what for, when that has changed."""

    def notice(self, text: str) -> None:
        """Hear a sentence, such as that a job was submitted again."""


class NotebookWatch(Watch):
    """Shows in a notebook how far a sweep is."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._counted = False

    def trials(
        self, planned: Planned, unfinished: Mapping[str, int]
    ) -> AbstractContextManager[Callable[[Event], None]]:
        """Show a bar for as long as packs run."""
        manifest = planned.sweep.manifest
        ahead = trials_ahead(manifest, dict(unfinished))
        return notebook.live(self._display, manifest, ahead, planned.sweep.folder)

    def counts(self, text: str) -> None:
        """Show how many jobs run and wait, in one line that changes."""
        self._display({"text/plain": text}, raw=True, display_id=f"jobs-{id(self)}", update=self._counted)
        self._counted = True

    def notice(self, text: str) -> None:
        """Show a sentence that the user should not miss."""
        self._display({"text/plain": text}, raw=True)


def watch_here() -> Watch:
    """Show progress where this process is the kernel of a notebook; elsewhere keep silent."""
    display = notebook.notebook_display()
    return NotebookWatch(display) if display else Watch()
