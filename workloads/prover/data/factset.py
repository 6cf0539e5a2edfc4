"""Membership of ground atoms in the facts: an open-addressing table of keys, probed without branches."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.prover.data.knowledge import KnowledgeBase

ROOM = 16
"""Slots of the table per fact: few collisions, few probes."""
MULTIPLIERS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xC2B2AE3D27D4EB4F, 0xA0761D6478BD642F)


class FactSet:
    """The set of fact keys. The slot of a key is the top bits of its product with an odd number."""

    def __init__(self, kb: KnowledgeBase) -> None:
        keys = kb.fact_keys.cpu().numpy()
        self.bits = max(4, int(np.ceil(np.log2(ROOM * max(1, keys.size)))))
        built = [self._table(keys, multiplier) for multiplier in MULTIPLIERS]
        table, self.probes, multiplier = min(built, key=lambda found: found[1])
        self.multiplier = multiplier - 2**64 if multiplier >= 2**63 else multiplier
        self.table = torch.from_numpy(table).to(kb.fact_keys.device)

    def _table(self, keys: np.ndarray, multiplier: int) -> tuple[np.ndarray, int, int]:
        table = np.full(2**self.bits, -1, dtype=np.int64)
        products = keys.astype(np.uint64) * np.uint64(multiplier)  # wraps around
        slots = (products >> np.uint64(64 - self.bits)).astype(np.int64)
        waiting, probe = np.arange(keys.size), 0
        while waiting.size:
            at = (slots[waiting] + probe) & (2**self.bits - 1)
            empty = table[at] == -1
            table[at[empty]] = keys[waiting[empty]]  # of several keys for one slot the last stays
            waiting = waiting[table[at] != keys[waiting]]
            probe += 1
        return table, max(probe, 1), multiplier

    def holds(self, keys: Tensor) -> Tensor:
        """Whether each key is a fact's."""
        mask = 2**self.bits - 1
        slot = ((keys * self.multiplier) >> (64 - self.bits)) & mask
        found = self.table[slot] == keys
        for probe in range(1, self.probes):
            found = found | (self.table[(slot + probe) & mask] == keys)
        return found
