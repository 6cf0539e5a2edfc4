"""When Python's garbage collector runs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

FREEZE_AT = 3  # what lives as long as the training is there by then


@dataclass
class Collector:
    """Full collections after evaluations, none, or one where memory has run out.

    The field report empties the allocator's cache and collects afterwards, which leaves what the collection
    frees in the cache. Here it is the other way round, except in the baseline.

    Attributes
    ----------
    every : evaluations from one collection to the next; 0 for none
    freeze_at : iteration after which everything that exists is frozen; 0 for never
    reversed_order : empty the cache before collecting, as the naive path does
    on_oom : collect and try once more where memory runs out
    """

    every: int = 0
    freeze_at: int = 0
    reversed_order: bool = False
    on_oom: bool = False
    evaluations: int = 0
    runs: int = 0

    def after_evaluation(self) -> None:
        """Collect if it is time."""
        self.evaluations += 1
        if self.every and self.evaluations % self.every == 0:
            self.collect()

    def after_iteration(self, iteration: int) -> None:
        """Freeze if it is time; `iteration` counts from 1."""
        if iteration == self.freeze_at:
            gc.collect()
            gc.freeze()

    def collect(self) -> None:
        """Collect, and give free memory back to the device."""
        if self.reversed_order:
            empty_cache()
        gc.collect()
        if not self.reversed_order:
            empty_cache()
        self.runs += 1

    def guard(self, work: Callable[[], Any]) -> Any:
        """`work`, and once more after a collection where memory ran out."""
        if not self.on_oom:
            return work()
        try:
            return work()
        except torch.OutOfMemoryError:
            self.collect()
        return work()

    def close(self) -> None:
        """Leave the process as it was found."""
        if self.freeze_at:
            gc.unfreeze()


def empty_cache() -> None:
    """Give the allocator's free blocks back, where there is a device."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def collector_for(level: str) -> Collector:
    """The collector of a level of the toggle `gc`."""
    return {
        "each_eval": Collector(every=1, reversed_order=True),
        "rarely": Collector(every=10),
        "frozen": Collector(freeze_at=FREEZE_AT),
        "oom_only": Collector(on_oom=True),
    }[level]
