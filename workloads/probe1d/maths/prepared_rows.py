"""Data as an arm's passes see it: constants, evaluator, and the order of latents."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.data.problem import Constants, Csr, Labels
from perfsweep.workloads.probe1d.maths.blocks import Block, make_block
from perfsweep.workloads.probe1d.maths.buckets import Chunker, Layout
from perfsweep.workloads.probe1d.maths.derivatives import Evaluator


@dataclass(frozen=True)
class PreparedRows:
    """Rows prepared for an arm.

    `constants` and everything the evaluator takes or gives are in rank order where there is a layout;
    `order[rank]` is the latent then. `slots` [L] are the events an evaluator visits for each latent.
    """

    x: Csr
    labels: Labels
    grid: Tensor
    constants: Constants
    metric: Tensor
    evaluator: Evaluator
    slots: Tensor
    chunker: Chunker | None = None
    layout: Layout | None = None
    dense: Tensor | None = None

    @property
    def order(self) -> Tensor | None:
        """Latent at each rank, None where latents keep their order."""
        return None if self.layout is None else self.layout.order

    def reach(self) -> Tensor:
        """Largest |x| of each latent, float64 [L], latents in this order."""
        found = torch.zeros(self.x.latents, dtype=torch.float64, device=self.x.values.device)
        if self.layout is None:
            return found.scatter_reduce(0, self.x.indices.long(), self.x.values.double().abs(), "amax")
        for bucket in self.layout.buckets:
            found[bucket.first : bucket.last] = torch.linalg.vector_norm(bucket.x, torch.inf, dim=1).double()
        return found

    def least(self) -> Tensor:
        """Smallest non-zero |x| of each latent, infinite without any, float64 [L], latents in this order."""
        found = torch.full((self.x.latents,), torch.inf, dtype=torch.float64, device=self.x.values.device)
        if self.layout is None:
            return found.scatter_reduce(0, self.x.indices.long(), self.x.values.double().abs(), "amin")
        for bucket in self.layout.buckets:
            found[bucket.first : bucket.last] = (
                bucket.x.abs().masked_fill(bucket.x == 0, torch.inf).amin(1).double()
            )
        return found

    def positive(self) -> Tensor:
        """Latents without a value below zero, bool [L], latents in this order; by latent only."""
        found = torch.ones(self.x.latents, dtype=torch.bool, device=self.x.values.device)
        for bucket in self.layout.buckets if self.layout else ():
            found[bucket.first : bucket.last] = bucket.x.amin(1) >= 0
        return found

    def block(self, columns: Tensor, dtype: torch.dtype, flat: bool = False) -> Block:
        """The block of all latents by the classes at `columns`."""
        return make_block(self.constants, columns, self.slots, dtype, flat=flat)


@dataclass(frozen=True)
class Prepared:
    """Everything made once per job (or once per process, where sorting is amortised)."""

    train: PreparedRows
    held_out: PreparedRows | None
