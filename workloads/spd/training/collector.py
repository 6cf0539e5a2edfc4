"""When Python's garbage collector runs, and gives the memory of what it collects back to the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from perfsweep.workloads.training.garbage_collection import POLICIES, Collector


@dataclass
class EmptyingCollector(Collector):
    """Collections that empty the allocator's cache too, and one where memory has run out.

    The field report empties the allocator's cache and collects afterwards, which leaves what the collection
    frees in the cache. Here it is the other way round, except in the baseline.

    Attributes
    ----------
    reversed_order : empty the cache before collecting, as the naive path does
    on_oom : collect and try once more where memory runs out
    """

    reversed_order: bool = False
    on_oom: bool = False

    def collect(self) -> None:
        """Collect, and give free memory back to the device."""
        if self.reversed_order:
            empty_cache()
        super().collect()
        if not self.reversed_order:
            empty_cache()

    def guard(self, work: Callable[[], Any]) -> Any:
        """`work`, and once more after a collection where memory ran out."""
        if not self.on_oom:
            return work()
        try:
            return work()
        except torch.OutOfMemoryError:
            self.collect()
        return work()


def empty_cache() -> None:
    """Give the allocator's free blocks back, where there is a device."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def collector_for(level: str) -> EmptyingCollector:
    """The collector of a level of the toggle `gc`."""
    if level == "oom_only":
        return EmptyingCollector(on_oom=True)
    return EmptyingCollector(**POLICIES[level], reversed_order=level == "each_eval")
