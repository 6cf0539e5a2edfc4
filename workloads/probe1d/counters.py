"""Machine-independent counts, kept by the code paths; the only place that reads device scalars."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from torch import Tensor

NAMES = (
    *("event_evaluations", "certification_evaluations", "pair_evaluations", "slab_passes"),
    *("naive_passes", "late_passes", "newton_passes", "slabs", "retries", "n_fail", "failing_passes"),
    *("warnings", "skipped_zero_grad", "frozen_pairs", "compacted_pairs", "scaled_tests", "warm_pairs"),
    *("halvings", "polished_pairs", "pairs_certified_by_bound", "unsolved_pairs", "lambda_max"),
    *("lambda_max_dead", "lambda_max_live", "chunks", "host_row_steps", "row_index_builds"),
    *("label_gathers", "casts", "bytes_cast", "kernel_launches", "bucket_launches"),
    *("compiled_launches", "fused_launches", "events_f64", "sums_acc64", "host_syncs", "device_syncs"),
    *("async_copies", "hook_records", "profiler_samples", "qx_passes", "metric_changed"),
    *("padded_slots", "stored_events", "confusion_searches", "confusion_events", "jobs"),
)

OF_DEAD = "lambda_max_dead"
"""The largest damping of pairs without events: where there are none it is nothing, and not 0."""


class Counts:
    """Named counts. A code path adds where it does the work, so a path not taken counts nothing."""

    def __init__(self) -> None:
        self.values: defaultdict[str, float] = defaultdict(float)

    def add(self, name: str, amount: float = 1) -> None:
        """Count `amount` more of `name`."""
        self.values[name] += amount

    def top(self, name: str, value: float) -> None:
        """Keep the largest `value` seen."""
        self.values[name] = max(self.values[name], value)

    def read(self, scalar: Tensor) -> float:
        """A device scalar on the host: waits for the device, and is counted as such."""
        self.values["host_syncs"] += 1
        return float(scalar)

    def read_all(self, tensor: Tensor) -> list:
        """A small device tensor on the host in one transfer, counted as one wait."""
        self.values["host_syncs"] += 1
        return tensor.tolist()

    def snapshot(self, extra: Iterable[tuple[str, float]] = ()) -> dict[str, float]:
        """All counts by name, zero where nothing happened; of pairs without events where there are any."""
        names = [name for name in NAMES if name != OF_DEAD or self.values[OF_DEAD]]
        return {**{name: float(self.values[name]) for name in names}, **dict(extra)}
