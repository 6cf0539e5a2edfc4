"""`perfsweep publish` and `perfsweep dashboard`: the records of a sweep in W&B. Neither imports torch."""

from __future__ import annotations

import os
from pathlib import Path

from perfsweep.pipelines.config.tracking import contradictions
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.publish import publishing as publishing
from perfsweep.pipelines.publish.published import published_line, table_of_runs
from perfsweep.pipelines.store.records import opened
from perfsweep.pipelines.terminal import console_here


def publish(sweep: str, offline: bool) -> int:
    """Copy records to W&B and show what of them is there; repeating it changes nothing."""
    folder, manifest = opened(sweep)
    console = console_here()
    for line in contradictions(manifest.sweep.tracking, os.environ):
        console.print(f"W&B: {line}", style="yellow", highlight=False, soft_wrap=True)
    done = publishing.publish(folder, mode="offline" if offline else "online")
    if done.notice:
        console.print(f"W&B: {done.notice}", style="yellow", highlight=False, soft_wrap=True)
    if done.runs:
        console.print(table_of_runs(done, f"{manifest.sweep.name} in W&B ({done.mode})"))
    console.print(
        published_line(done, folder),
        style="yellow" if done.warning else None,
        highlight=False,
        soft_wrap=True,
    )
    return DONE if done.complete else SOME_FAILED


def dashboard(sweep: str, entity: str | None, project: str | None, file: str | None, report: bool) -> int:
    """Build the workspace or the report of a sweep on the server, or write its specification to a file."""
    from perfsweep.pipelines.publish import dashboard as workspaces  # brings tables along
    from perfsweep.pipelines.publish import wandb_report

    folder, manifest = opened(sweep)
    build, what = (wandb_report.build, "report") if report else (workspaces.build, "dashboard")
    where = build(folder, manifest, entity=entity, project=project, file=Path(file) if file else None)
    console_here().print(f"{what}: {where}", highlight=False, soft_wrap=True)
    return DONE
