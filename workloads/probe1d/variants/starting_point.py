"""Where the solver begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from perfsweep.workloads.api import Level, Parity, Toggle
from perfsweep.workloads.probe1d.variants.part import Part
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.probe1d.maths.blocks import Block
    from perfsweep.workloads.probe1d.maths.prepared_rows import PreparedRows

WARM_START = Toggle(
    "warm_start",
    (Level("off"), Level("on", Parity.TOLERANCE, requires={"label_free": ("on",)}, witness="warm_pairs")),
    "start from the solution for activations taken as present or absent, or on nodes in the CPU's own kernel",
    "analysis",
)


class WarmStart(Part):
    """The solver begins near the solution."""

    def start(self, rows: PreparedRows) -> Callable[[Block], tuple[Tensor, Tensor]]:
        """At the binary solution, or at one on nodes: for float32 events in the CPU's kernel."""
        import torch

        from perfsweep.workloads.probe1d.kernels.native import NodeStart
        from perfsweep.workloads.probe1d.maths.separable import binary_start

        near = None
        if self.native(rows.x) and self.precision.compute == torch.float32:
            assert rows.layout is not None
            near = NodeStart(rows.layout, rows.constants.count)

        def begin(block: Block) -> tuple[Tensor, Tensor]:
            self.counts.add("warm_pairs", block.pair.numel())
            if near is not None:
                return near(block, self.config.tol)
            # In float64 throughout: shares close to one have no logit in float32.
            sum_x = rows.constants.sum_x[block.latent].unsqueeze(1)
            b, w = binary_start(block.double(), sum_x, self.config.tol)
            return b.to(block.prior.dtype), w.to(block.prior.dtype)

        return begin


VARIANTS = (Variant(WARM_START, {"on": WarmStart}),)
