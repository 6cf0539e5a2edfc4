"""When waiting jobs will start, as far as Slurm knows: its backfill scheduler plans some of them ahead."""

from __future__ import annotations

import time
from collections.abc import Iterable

ROUND_S = 300
"""The plan moves with every job that ends early: said exactly, it would be said anew all the time."""


def expected_start(starts: Iterable[str], now: time.struct_time) -> str:
    """Say when the first of several jobs is expected to start: ``first expected about 14:05``.

    Parameters
    ----------
    starts : local times as squeue prints them, ``2026-11-23T14:05:00``; empty where Slurm has none
    now : local time; what should have started already is not said
    """
    known = min((start for start in starts if start), default="")
    if known <= time.strftime("%Y-%m-%dT%H:%M:%S", now):
        return ""
    seconds = time.mktime(time.strptime(known, "%Y-%m-%dT%H:%M:%S"))
    start = time.localtime(-(-seconds // ROUND_S) * ROUND_S)
    today = start[:3] == now[:3]
    return f"first expected about {time.strftime('%H:%M' if today else '%Y-%m-%d %H:%M', start)}"
