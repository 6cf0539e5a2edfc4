"""Progress of a sweep, pack by pack: for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from perfsweep.pipelines.report.objects import member
from perfsweep.pipelines.terminal import whole_table

SCHEMA = "perfsweep.status/1"

JOB = ("job", "note")
"""Headings of a sweep on Slurm."""


@dataclass(frozen=True, kw_only=True)
class PackStatus:
    """One pack: its rounds, its trials, and the state of its job."""

    pack: str = member("its name, such as `p000`")
    arms: int = member("that it measures")
    rounds: int = member("finished")
    rounds_planned: int = member("that it is to have; grows while an adaptive sweep runs")
    trials: int = member("recorded, of every kind and attempt")
    not_ok: int = member("of them that did not end well")
    job: str | None = member("state of its job on Slurm; null where nothing of the sweep ever was there")
    note: str | None = member("what else is known of the job, such as why it waits; may be empty")

    @property
    def is_done(self) -> bool:
        """Whether all rounds are there."""
        return self.rounds >= self.rounds_planned


@dataclass(frozen=True, kw_only=True)
class SweepStatus:
    """What `perfsweep status SWEEP --json` prints."""

    schema: str = member(f"`{SCHEMA}`", default=SCHEMA)
    sweep: str = member("its name")
    workload: str = member("as the command line names it")
    folder: str = member("of the sweep, as it was given")
    exit: int = member("the exit status: 0 all rounds are there, 1 some are not, 3 a job needs attention")
    packs: tuple[PackStatus, ...] = member("every pack of the plan")
    skipped: tuple[str, ...] = member("files that could not be read, and why, in sentences")


def show(console: Console, status: SweepStatus) -> None:
    """Print a line for each pack, and what could not be read."""
    with_jobs = any(pack.job is not None for pack in status.packs)
    table = whole_table(
        Table(title=f"{status.sweep}: {status.workload}", title_justify="left"),
        *("pack", "arms", "rounds finished", "trials", "not ok", *(JOB if with_jobs else ())),
    )
    for pack in status.packs:
        counts = (f"{pack.rounds} of {pack.rounds_planned}", str(pack.trials), str(pack.not_ok))
        job = (pack.job or "", pack.note or "") if with_jobs else ()
        table.add_row(pack.pack, str(pack.arms), *counts, *job)
    console.print(table)
    for message in status.skipped:
        console.print(f"skipped: {message}", highlight=False, markup=False, soft_wrap=True)
