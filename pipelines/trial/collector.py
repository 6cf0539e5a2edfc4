"""Python's garbage collector: the same state for all arms, unless it is what an arm measures."""

from __future__ import annotations

import gc

from perfsweep.workloads.api import Declaration, Levels


def prepare_collector(workload: type[Declaration], levels: Levels) -> None:
    """Before set-up: a workload that measures the collector sees it as an ordinary process does."""
    if _measures_collector(workload, levels):
        gc.unfreeze()


def settle_collector(workload: type[Declaration], levels: Levels) -> None:
    """After warm-up, one state of Python's collector for all arms, unless it is a toggle of the workload."""
    if not _measures_collector(workload, levels):
        gc.collect()
        gc.freeze()


def _measures_collector(workload: type[Declaration], levels: Levels) -> bool:
    return any(toggle.owns_collector for toggle in workload.toggles_named(levels))
