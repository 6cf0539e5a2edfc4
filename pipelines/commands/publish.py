"""The commands that talk to W&B alone, and what a sweep says about W&B before it measures; none of them
imports torch."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from rich.console import Console

from pipelines.config.tracking import Tracking, contradictions, filled
from pipelines.config.types import SweepCommand, TrackingConfig
from pipelines.exits import DONE, SOME_FAILED
from pipelines.publish import publish as publishing
from pipelines.publish.published import published_line, table_of_runs
from pipelines.store.records import opened
from pipelines.terminal import console_here


def publish(path: str, mode: str) -> int:
    """Copy records to W&B and show what of them is there; repeating it changes nothing."""
    folder, manifest = opened(path)
    console = console_here()
    say_contradictions(console, Tracking.of(manifest.sweep.tracking))
    done = publishing.publish(folder, mode=mode)
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


def dashboard(path: str, entity: str | None, project: str | None, file: str | None) -> int:
    """Build the workspace of a sweep on the server, or write its specification to a file."""
    from pipelines.publish import dashboard as building  # brings tables along

    folder, manifest = opened(path)
    where = building.build(
        folder, manifest, entity=entity, project=project, file=Path(file) if file else None
    )
    console_here().print(f"dashboard: {where}", highlight=False, soft_wrap=True)
    return DONE


def prepare_tracking(console: Console, command: SweepCommand) -> None:
    """Take from the shell what the configuration leaves open, and say before measuring what will not work as
    asked."""
    command.tracking = dataclasses.replace(command.tracking, **filled(command.tracking, os.environ))
    if command.tracking.mode == "disabled":
        return
    say_contradictions(console, command.tracking)
    _, notice = publishing.target(Tracking.of(dataclasses.asdict(command.tracking)))
    if notice:
        console.print(f"W&B: {notice}", style="yellow", highlight=False, soft_wrap=True)


def say_contradictions(console: Console, tracking: TrackingConfig | Tracking) -> None:
    """Print where the shell's W&B variables say something else than the configuration."""
    for line in contradictions(tracking, os.environ):
        console.print(f"W&B: {line}", style="yellow", highlight=False, soft_wrap=True)
