"""What a slab is predicted to need, and the refusal that stands for an out-of-memory error."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from workloads.prover.data.knowledge import SUCCESSORS, KnowledgeBase

LIVE_RAW = 5
"""Tensors as large as the raw successors that exist at once: parts, their join, and what is gathered from it.
"""
LIVE_STATES = 6
"""Activations of one state that exist at once, in widths of the network."""
NARROW_PAIRS = 24
"""Pairs of a row where an index finds them, on the generous side of what data sets show."""


class PredictedOutOfMemory(MemoryError):
    """A slab that would not fit: refused before the allocator, or the kernel, has to."""


@dataclass(frozen=True)
class SlabMemory:
    """Bytes per row of a slab.

    Attributes
    ----------
    pairs : pairs of a row with facts and rules; slots : W; item : bytes of an id
    states : states of a row that go through the network; width : its width
    """

    pairs: int
    slots: int
    columns: int
    item: int
    states: int
    width: int

    @classmethod
    def of(
        cls, kb: KnowledgeBase, rules: int, indexed: bool, slots: int, item: int, states: int, width: int
    ) -> SlabMemory:
        """The figures of one arm."""
        facts = min(NARROW_PAIRS, kb.largest_predicate) if indexed else kb.largest_predicate
        return cls(rules + facts, slots, kb.facts.shape[1], item, states, width)

    def raw_bytes(self, rows: int) -> int:
        """One tensor of raw successors."""
        return rows * self.pairs * self.slots * self.columns * self.item

    def derived_bytes(self, rows: int) -> int:
        """One tensor of packed successors, the [B, 120, W, 1+r] of the report."""
        return rows * SUCCESSORS * self.slots * self.columns * self.item

    def peak_bytes(self, rows: int) -> int:
        """Everything at once."""
        return LIVE_RAW * self.raw_bytes(rows) + LIVE_STATES * rows * self.states * self.width * 4

    def check(self, rows: int, budget: int) -> None:
        """Refuse a slab of `rows` that needs more than `budget` bytes.

        Raises
        ------
        PredictedOutOfMemory
            With the predicted peak, the largest single tensor and a slab that would fit.
        """
        peak = self.peak_bytes(rows)
        if peak > budget:
            fits = max(0, budget // max(1, self.peak_bytes(1)))
            advice = f"toggles.slab_size={fits} would fit" if fits else "not even one row would fit"
            raise PredictedOutOfMemory(
                f"a slab of {rows} rows is predicted to need {peak / 1e9:.2f} GB"
                f" ({self.raw_bytes(rows) / 1e9:.2f} GB for one tensor of raw successors) and the budget is"
                f" {budget / 1e9:.2f} GB: {advice}"
            )


def device_budget(memory_gb: float | None, given: int | None, device: str) -> int:
    """Bytes a slab may need: what is configured, else nine tenths of what the device has."""
    limits = [int(memory_gb * 1e9)] if memory_gb is not None else []
    limits += [given] if given is not None else []
    if device == "cuda":
        limits.append(int(0.9 * torch.cuda.mem_get_info()[1]))
    else:
        limits.append(int(0.9 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    return min(limits)
