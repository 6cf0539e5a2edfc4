"""Where results of pairs are kept, and why each pair ended."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import torch
from torch import Tensor


class Reason(IntEnum):
    """Why a pair ended; PENALISED: at the minimum of its objective, whose penalty costs too much loss."""

    CONVERGED = 0
    DEAD = 1
    FROZEN = 2
    BUDGET = 3
    PENALISED = 4


@dataclass
class Solution:
    """Results by pair, flat [L * C], latents in the order of the layout that solved them.

    `sure` are pairs that need no certification any more; `loss` is there where certification gives it.
    """

    b: Tensor
    w: Tensor
    evals: Tensor
    gmax: Tensor
    reason: Tensor
    sure: Tensor
    latents: int
    loss: Tensor | None = None

    def expect_losses(self) -> None:
        """Make room for losses, which something is going to store."""
        self.loss = torch.full_like(self.b, torch.nan, dtype=torch.float32)

    @classmethod
    def empty(cls, latents: int, classes: int, device: torch.device | str) -> Solution:
        """Room for all pairs, every one counted as out of budget until it is stored."""
        size = latents * classes
        zeros = torch.zeros(size, dtype=torch.float64, device=device)
        return cls(
            b=zeros,
            w=zeros.clone(),
            evals=torch.zeros(size, dtype=torch.int32, device=device),
            gmax=torch.full((size,), torch.inf, dtype=torch.float64, device=device),
            reason=torch.full((size,), int(Reason.BUDGET), dtype=torch.uint8, device=device),
            sure=torch.zeros(size, dtype=torch.bool, device=device),
            latents=latents,
        )

    def store(self, pair: Tensor, **values: Tensor) -> None:
        """Write the named fields of the pairs with the given indices (any shape, each at most once)."""
        places = pair.reshape(-1)
        for name, value in values.items():
            into = getattr(self, name)
            into.scatter_(0, places, value.expand(pair.shape).reshape(-1).to(into.dtype))

    def by_latent(self, order: Tensor | None) -> dict[str, Tensor]:
        """Matrices [L, C] with latents in their original order; `order[rank]` is the latent at that rank."""
        found = {}
        for field in fields(self):
            values = getattr(self, field.name)
            if not isinstance(values, Tensor) or field.name == "sure":
                continue
            matrix = values.view(self.latents, -1)
            if order is not None:
                matrix = torch.empty_like(matrix).index_copy_(0, order, matrix)
            found[field.name] = matrix
        return found
