"""How survivors and their atoms are packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads.api import Level, Toggle
from perfsweep.workloads.prover.variants.part import Part, integers
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.prover.counters import Tally
    from perfsweep.workloads.prover.maths.episodes import Rows
    from perfsweep.workloads.prover.maths.packing import Lists
    from perfsweep.workloads.prover.maths.unify import Raw

COMPACTION = Toggle(
    "compaction",
    (Level("sort"), integers("scan", "sorts")),
    "pack by prefix sums instead of a stable sort",
    "Future 6",
)


class Scanned(Part):
    """Prefix sums say where everything belongs."""

    def pack(self, rows: Rows, parts: list[Raw], tally: Tally) -> Lists:
        """Without a sort."""
        lists = super().pack(rows, parts, tally)
        tally["sorts"] = 0
        return lists

    def ranks(self, alive: list[Tensor], owners: list[Tensor], rows: int) -> tuple[list[Tensor], Tensor]:
        """Place of each survivor among its owner's, parts in order, and survivors by row [B]."""
        import torch

        ranks, total = [], torch.zeros(rows, dtype=torch.int64, device=alive[0].device)
        for part, owner in zip(alive, owners, strict=True):
            count = torch.zeros_like(total).index_add_(0, owner, part.to(torch.int64))
            # Owners ascend within a part: the place of a survivor is its number in the part, less those of
            # the rows before its own, plus what its row has from earlier parts.
            before = count.cumsum(0) - count - total
            ranks.append(part.cumsum(0) - 1 - before[owner])
            total = total + count
        return ranks, total

    def left_aligned(self, states: Tensor, keep: Tensor) -> Tensor:
        """Kept atoms moved to the left: [n, W, 1+r] to [n, A, 1+r]."""
        import torch

        from perfsweep.workloads.prover.data.knowledge import ATOMS

        # What is dropped, and what lies beyond A, goes to one more slot, which is cut off.
        target = torch.where(keep, keep.cumsum(1) - 1, ATOMS).clamp(max=ATOMS)
        packed = states.new_zeros(states.shape[0], ATOMS + 1, states.shape[2])
        packed.scatter_(1, target[..., None].expand_as(states), states)
        return packed[:, :ATOMS]


VARIANTS = (Variant(COMPACTION, {"scan": Scanned}),)
