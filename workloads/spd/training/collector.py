"""When Python's garbage collector runs, and gives the memory of what it collects back to the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from perfsweep.workloads.training.garbage_collection import Collector


@dataclass
class EmptyingCollector(Collector):
    """Collections that empty the allocator's cache too.

    The field report empties the allocator's cache and collects afterwards, which leaves what the collection
    frees in the cache. Here it is the other way round, except in the baseline.

    Attributes
    ----------
    reversed_order : empty the cache before collecting, as the naive path does
    """

    reversed_order: bool = False

    def collect(self) -> None:
        """Collect, and give free memory back to the device."""
        if self.reversed_order:
            empty_cache()
        super().collect()
        if not self.reversed_order:
            empty_cache()


def empty_cache() -> None:
    """Give the allocator's free blocks back, where there is a device."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
