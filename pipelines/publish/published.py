"""What publishing did: one line for each run, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.pipelines.terminal import shell_line


@dataclass(frozen=True)
class PublishedRun:
    """One run: where its copy lies (a folder or an address) and how many rows arrived there.

    `rows_before` is None where what was there is unknown; `remark` is about the way it was written.
    """

    arm: str
    label: str
    pack: str
    run_id: str
    where: str | None
    rows_produced: int
    rows_found: int
    note: str
    rows_before: int | None = None
    remark: str = ""

    @property
    def complete(self) -> bool:
        """Whether every row has been found again."""
        return self.where is not None and self.rows_found == self.rows_produced


@dataclass(frozen=True)
class Published:
    """What publishing did.

    Attributes
    ----------
    mode : offline, online or disabled: what was done, not what was asked for
    notice : one sentence about why it is not the mode that was asked for
    warning : one sentence about what is missing; None when nothing is
    """

    runs: tuple[PublishedRun, ...] = ()
    warning: str | None = None
    mode: str = "offline"
    notice: str | None = None

    @property
    def complete(self) -> bool:
        """Whether every row of every run has been found again."""
        return self.warning is None and all(run.complete for run in self.runs)

    @property
    def new(self) -> int:
        """Runs that were not complete already."""
        return sum(run.note != "already complete" for run in self.runs)


def warning(runs: Sequence[PublishedRun], problems: Sequence[str]) -> str | None:
    """One sentence about missing rows and unreadable records."""
    short = [run for run in runs if not run.complete]
    if not short and not problems:
        return None
    rows = sum(run.rows_produced - run.rows_found for run in short)
    what = f"{len(short)} of {len(runs)} runs lack {rows} rows" if short else "some records could not be read"
    reasons = list(dict.fromkeys([*problems, *(run.note for run in short)]))
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{what}, the records are untouched, fix this and publish again: {reasons[0]}{more}"


def table_of_runs(done: Published, title: str) -> Table:
    """The runs with their rows: produced, there before, there now."""
    found = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    found.add_column("run", overflow="fold")
    found.add_column("pack")
    for heading in ("rows", "before", "now"):
        found.add_column(heading, justify="right", no_wrap=True)
    found.add_column("state", overflow="fold")
    for run in done.runs:
        before = "" if run.rows_before is None else str(run.rows_before)
        state = run.note if run.complete else f"incomplete: {run.note}"
        style = None if run.complete else "yellow"
        found.add_row(
            run.label, run.pack, str(run.rows_produced), before, str(run.rows_found), state, style=style
        )
    return found


def published_line(done: Published, folder: SweepFolder) -> str:
    """One sentence: what is published where, and what is missing."""
    if done.mode == "disabled":
        return f"W&B: nothing of {folder.path} is published, because tracking.mode=disabled"
    if not done.runs and not done.warning:
        return f"W&B: nothing to publish of {folder.path} yet"
    rows, found = sum(run.rows_produced for run in done.runs), sum(run.rows_found for run in done.runs)
    place = "on the server" if done.mode == "online" else f"in {folder.wandb_dir}"
    runs = f"{len(done.runs)} run{'' if len(done.runs) == 1 else 's'}"
    line = f"W&B: {runs}, {done.new} of them new or changed, {found} of {rows} rows {place}"
    upload = (
        f"; upload them with `{shell_line('publish', folder.path)}`"
        if done.mode == "offline" and not done.warning
        else ""
    )
    return f"{line}; {done.warning}" if done.warning else line + upload
