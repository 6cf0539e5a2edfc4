"""Counts of a job, taken from what the steps say and read from the device once, when the job has ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor

Tally = dict[str, float | Tensor]
"""Counts of one step by name; tensors are read when the job has ended."""

NAMES = (
    *("steps", "slabs", "row_steps", "useful_row_steps", "padded_rows", "masked_rows", "refilled", "done"),
    *("deferred", "overflow", "fact_pairs", "rule_pairs", "bytes_packed", "sorts"),
    *("states_real", "states_padded", "states_wanted", "states_evaluated"),
    *("states_rescored", "low_precision_states", "tf32_products", "policy_macs"),
    *("kernel_rows", "selected_rows", "fused_rows"),
    *("corruption_batches", "warmup_rows", "probe_steps", "store_hits", "jobs"),
    *("recompiles_after_warmup", "recompile_s", "compiled_steps"),
)


class Counts:
    """Named counts since set-up. A path adds where it does the work, so a path not taken counts nothing."""

    def __init__(self) -> None:
        self.values: defaultdict[str, float] = defaultdict(float)
        self.iterations: list[Tally] = []

    def add(self, name: str, amount: float = 1) -> None:
        """Count `amount` more of `name`."""
        self.values[name] += amount

    def iteration(self, tally: Tally) -> None:
        """Keep what one iteration counted; tensors stay where they are."""
        self.iterations.append(tally)

    def settle(self) -> list[dict[str, float]]:
        """Add a row of numbers per iteration of the ended job to the totals. Waits for the device once."""
        waiting = [
            (row, name, value)
            for row in self.iterations
            for name, value in row.items()
            if isinstance(value, Tensor)
        ]
        if waiting:
            numbers = torch.stack([value.to(torch.float64) for _, _, value in waiting]).tolist()
            for (row, name, _), number in zip(waiting, numbers, strict=True):
                row[name] = number
        rows = [{name: float(value) for name, value in row.items()} for row in self.iterations]
        self.iterations = []
        for row in rows:
            for name, value in row.items():
                self.values[name] += value
            self.values["steps"] += 1
        return rows

    def snapshot(self, extra: Mapping[str, float]) -> dict[str, float]:
        """All counts by name, zero where nothing happened."""
        return {**{name: float(self.values[name]) for name in NAMES}, **extra}
