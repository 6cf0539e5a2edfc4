"""Arms of Probe1D that the contract is tested on; its toggles and claims are the workload's own."""

from __future__ import annotations

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.probe1d.claims import CLAIMS
from perfsweep.workloads.probe1d.config import Probe1DConfig as Config
from perfsweep.workloads.probe1d.variants import TOGGLES

__all__ = ["BEST", "CHAIN", "CLAIMS", "FORBIDDEN", "REFERENCES", "REFUSED_BY_CONFIG", "TOGGLES", "Config"]

REFERENCES: dict[str, dict[str, LevelValue]] = {
    "naive": {},
    "late": {"solver": "late"},
    "fixed_stop": {"solver": "late", "consistent_stop": "scaled"},
}

BEST: dict[str, LevelValue] = {
    "solver": "newton",
    "slab_size": "all",
    "active_set": "pair",
    "no_sync_log": "on",
    "label_free": "on",
    "csc_layout": "on",
    "compile": "on",
    "warm_start": "on",
    "qx_stat": "rms_free",
    "confusion_search": "on",
}

CHAIN: tuple[tuple[str, LevelValue], ...] = (
    ("consistent_stop", "scaled"),
    ("skip_zero_grad", "exact"),
    ("cache_row_idx", "on"),
    ("label_free", "on"),
    ("csc_layout", "on"),
    ("compile", "on"),
    ("active_set", "pair"),
    ("warm_start", "on"),
    ("confusion_search", "on"),
)

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
