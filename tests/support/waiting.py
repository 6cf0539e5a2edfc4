"""Waiting for what other processes do: never for so long that a test sleeps, never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 180.0
"""A deadline says that something hangs, on the slowest machine; no test judges how long anything took."""
LONGEST_PAUSE_S = 0.2


def until(condition: Callable[[], object], what: str = "it", deadline_s: float = DEADLINE_S) -> None:
    """Poll a condition until it holds, or fail at the deadline."""
    end, pause = time.monotonic() + deadline_s, 0.02
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {deadline_s:g} s"
        time.sleep(pause)
        pause = min(1.2 * pause, LONGEST_PAUSE_S)  # many conditions start one of Slurm's clients
