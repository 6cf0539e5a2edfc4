"""The trunk with everything but its products in one pass per layer: C++ on CPUs, Triton on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from perfsweep.workloads.prover.maths.policy import Policy, PolicyShape, Weights, term_tables

if TYPE_CHECKING:
    from perfsweep.workloads.prover.kernels.block_trunk import BlockTrunk

Activate = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""(product, bias, scale, shift, x) to x + LN(ReLU(product + bias)) in float32, and in the type of the
product."""


class FusedPolicy(Policy):
    """The same network; `fused_rows` counts rows of layers that went through the fused pass."""

    def __init__(self, weights: Weights, shape: PolicyShape, folded: bool = False, low: bool = False) -> None:
        super().__init__(weights, shape, folded, low)
        self.fused_rows = 0
        self.cpu = not weights["P"].is_cuda
        self.dtype = torch.bfloat16 if low else torch.float32
        self._activate = self._kernel()
        self._buffer = torch.empty(0, shape.width)
        if self.table is not None:
            self.table = self.table.contiguous()
        rows = self.weights["P"].shape[0]
        self.offsets = (rows, rows + self.weights["U"].shape[0])
        self.from_tables = self.cpu and self.table is not None and len(term_tables(self.weights)) == 2
        self.trunk = self._by_blocks() if self.cpu else None

    def _kernel(self) -> Activate:
        if self.cpu:
            from perfsweep.workloads.prover.kernels.native import activate

            return activate
        from perfsweep.workloads.prover.kernels.triton_trunk import activate

        return activate

    def _by_blocks(self) -> BlockTrunk | None:
        from perfsweep.workloads.prover.kernels.block_trunk import block_trunk

        table = self.table if self.from_tables else None
        return block_trunk(self.weights, self.shape, self.low, table, self.offsets)

    def _layer(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(self.weights[f"trunk.{layer}.{part}"] for part in ("bias", "scale", "shift"))  # type: ignore[return-value]

    def hidden(self, states: Tensor) -> Tensor:
        """What enters the last product: [N, A, 1+r] to [N, D]."""
        self.fused_rows += len(states) * (self.shape.layers + 1)
        if self.trunk is not None and self.from_tables:
            return self.trunk.of_states(states)
        x, following = self._first_layer(states)
        if self.trunk is not None:
            return self.trunk(x, following)
        for layer in range(1, self.shape.layers + 1):
            product = F.linear(following, self.products[f"trunk.{layer}.weight"])
            x, following = self._activate(product, *self._layer(layer), x)
        bias = self.weights["hidden.bias"].to(self.dtype)
        return F.linear(following, self.products["hidden.weight"], bias).relu_()

    def values(self, states: Tensor) -> Tensor:
        """What is kept of a state: [N, A, 1+r] to [N, E] or, folded, [N, D]."""
        h = self.hidden(states)
        return h.float() if self.folded else self.linear(h, "out").float()

    def screening_values(self, states: Tensor) -> Tensor:
        """Values that go into products at once: folded ones stay in 16 bits."""
        return self.hidden(states) if self.folded else self.values(states)

    def state_logits(self, states: Tensor, keys: Tensor, offset: Tensor, owner: Tensor) -> Tensor:
        """Logits [n] of states [n, A, 1+r] whose values are not kept."""
        if self.trunk is None or not self.from_tables:
            return super().state_logits(states, keys, offset, owner)
        self.fused_rows += len(states) * (self.shape.layers + 1)
        if len(self._buffer) < len(states):
            self._buffer = torch.empty(len(states) * 5 // 4, self.shape.width, dtype=self.dtype)
        return self.dots(self.trunk.of_states(states, self._buffer[: len(states)]), keys, offset, owner)

    def dots(self, values: Tensor, keys: Tensor, offset: Tensor, owner: Tensor) -> Tensor:
        """Logits [n] of values [n, .] with the keys [B, .] and offsets [B] of their owners [n]."""
        if not self.cpu:
            return super().dots(values, keys, offset, owner)
        from perfsweep.workloads.prover.kernels.native import dots

        return dots(values, keys, offset, owner)

    def _first_layer(self, states: Tensor) -> tuple[Tensor, Tensor]:
        bias, scale, shift = self._layer(0)
        if self.from_tables and self.table is not None:
            from perfsweep.workloads.prover.kernels.native import first_layer

            decay = self.shape.decay
            return first_layer(states, self.table, self.offsets, decay, bias, scale, shift, self.dtype)
        product = self.first(states) - bias.to(self.dtype)  # the fused pass adds it again
        return self._activate(product.to(self.dtype), bias, scale, shift, None)
