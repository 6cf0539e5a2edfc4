"""Probe1D's toggles, with combinations that must be refused."""

from __future__ import annotations

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.probe1d.config import Probe1DConfig as Config
from perfsweep.workloads.probe1d.variants import TOGGLES

__all__ = ["FORBIDDEN", "REFUSED_BY_CONFIG", "TOGGLES", "Config"]

_LATE_SORTED: dict[str, LevelValue] = {"solver": "late", "label_free": "on", "csc_layout": "on"}

FORBIDDEN: tuple[tuple[dict[str, LevelValue], str], ...] = (
    ({"solver": "late", "csc_layout": "on"}, "label_free"),
    ({"solver": "newton", "label_free": "on", "compile": "on"}, "csc_layout"),
    ({"solver": "late", "warm_start": "on"}, "label_free"),
    ({**_LATE_SORTED, "active_set": "pair"}, "consistent_stop"),
    ({"solver": "newton", "confusion_search": "on"}, "csc_layout"),
    ({"solver": "newton", "skip_zero_grad": "exact"}, "solver"),
    ({"solver": "newton", "cache_row_idx": "on"}, "solver"),
    ({"solver": "newton", "chunk_events": 2**20}, "solver"),
    ({"solver": "newton", "chunk_events": 1000}, "solver"),
    ({"solver": "newton", "freeze_failed": 3}, "solver"),
    ({"solver": "late", "consistent_stop": "seed"}, "solver"),
    ({"solver": "newton", "consistent_stop": "mismatch"}, "solver"),
    ({"consistent_stop": "mismatch"}, "solver"),
)

REFUSED_BY_CONFIG: tuple[tuple[Config, dict[str, LevelValue], str], ...] = ()
