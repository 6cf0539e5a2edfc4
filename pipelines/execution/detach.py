"""Ctrl-C while jobs run on Slurm: they go on, unless a second one says that they should not."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console

from perfsweep.pipelines.execution import progress_display

SECOND_S = 3.0
"""How long a second Ctrl-C is waited for."""


def detach(console: Console, folder: str, cancel: Callable[[], int], left: int = 0) -> None:
    """Say how to come back; on a terminal, offer to cancel the jobs to whoever presses Ctrl-C again.

    `left` packs were never submitted: nothing of them goes on.
    """
    told = f"\n{_what_goes_on(left)} {progress_display.how_to_come_back(folder)}"
    console.print(told, highlight=False, soft_wrap=True)
    if not (console.is_terminal and sys.stdin.isatty()):
        return
    try:
        console.print(f"Ctrl-C again within {SECOND_S:g} seconds offers to cancel them.")
        time.sleep(SECOND_S)
    except KeyboardInterrupt:
        try:
            answer = console.input("\ncancel all jobs of this sweep? [y/N] ", markup=False)
        except (KeyboardInterrupt, EOFError):
            return
        if answer.strip().lower() in ("y", "yes"):
            console.print(
                f"cancelled {cancel()} jobs; finished rounds are kept in {folder}",
                highlight=False,
                markup=False,
            )


def _what_goes_on(left: int) -> str:
    if not left:
        return "detached: the jobs go on."
    packs = "1 pack was" if left == 1 else f"{left} packs were"
    return (
        f"detached: submitted jobs go on, but {packs} not submitted yet and will not be until the same sweep"
        " command is started again."
    )
