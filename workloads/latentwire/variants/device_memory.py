"""Memory that the allocator gives back to the device."""

from __future__ import annotations

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.latentwire.variants.part import Part
from perfsweep.workloads.variant import Variant


class ReleasedEachStep(Part):
    """After every step."""

    def release(self, step: int) -> None:
        """Give memory back to the device."""
        import torch

        torch.cuda.empty_cache()
        self.counts["cache_releases"] += 1


class ReleasedEachEpoch(ReleasedEachStep):
    """After the last step of an epoch."""

    def release(self, step: int) -> None:
        """Give memory back to the device, if step `step` is the last."""
        if step % self.per_epoch == 0:
            super().release(step)

    def periods(self) -> list[int]:
        """Steps after which something comes again."""
        return [*super().periods(), self.per_epoch]


VARIANTS = (
    Variant(
        shared.empty_cache(every={"witness": "cache_releases"}, source="Memory 4"),
        {"step": ReleasedEachStep, "epoch": ReleasedEachEpoch},
    ),
)
