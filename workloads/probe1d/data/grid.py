"""The grid of pairs: which class columns form a slab, the constants of a block of pairs, and where results
are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import IntEnum
from itertools import pairwise

import torch
from torch import Tensor

from workloads.probe1d.data.problem import Constants
from workloads.probe1d.maths.derivatives import Block


class Reason(IntEnum):
    """Why a pair ended."""

    CONVERGED = 0
    DEAD = 1
    FROZEN = 2
    BUDGET = 3


def slabs(classes: int, size: int | str) -> Iterator[Tensor]:
    """Grid columns in slabs of `size` classes ("all": one slab); the last slab may be shorter."""
    width = classes if size == "all" else min(int(size), classes)
    return iter(torch.arange(classes).split(width))


def sampled_classes(classes: int, width: int, number: int | None, seed: int) -> Tensor:
    """Classes of the requested grid: all, or `number` blocks of `width` drawn one from each equal stratum of
    blocks.

    The rule looks at nothing but sizes and seed, so that every arm of a comparison solves the same pairs.
    """
    blocks = torch.arange(classes).split(width)
    if number is None or number >= len(blocks):
        return torch.arange(classes)
    generator = torch.Generator().manual_seed(seed)
    edges = [round(i * len(blocks) / number) for i in range(number + 1)]
    picks = [int(torch.randint(low, high, (1,), generator=generator)) for low, high in pairwise(edges)]
    return torch.cat([blocks[pick] for pick in picks])


def make_block(
    constants: Constants,
    columns: Tensor,
    slots: Tensor,
    dtype: torch.dtype,
    *,
    flat: bool = False,
    first: int = 0,
) -> Block:
    """The block of the latents from `first` on by the classes at `columns`.

    Rectangular [latents, classes], or `flat`: one pair per row, which lets single pairs be left out later.
    `slots` [L] is the number of events that an evaluator visits: a padding event with x = 0 *is* a zero row,
    so padding needs no mask, only a smaller zero group.
    """
    latents, classes = constants.count.numel() - first, columns.numel()
    device = constants.count.device
    columns = columns.to(device)
    rank = torch.arange(first, first + latents, device=device)
    shape = (latents, classes)
    pair = rank[:, None] * constants.positives.numel() + columns

    def by_latent(values: Tensor) -> Tensor:
        return values[first:].to(dtype)[:, None].expand(shape)

    def by_class(values: Tensor) -> Tensor:
        return values.index_select(0, columns).to(dtype)[None, :].expand(shape)

    def by_pair(values: Tensor) -> Tensor:
        return values[first:].index_select(1, columns).to(dtype)

    parts = [
        pair,
        by_latent(constants.count),
        by_latent(constants.rows - slots),
        by_class(constants.positives),
        by_class(constants.prior),
        by_pair(constants.hits),
        by_pair(constants.hit_sum),
        by_latent(constants.scale),
    ]
    if flat:
        parts = [part.reshape(-1, 1) for part in parts]
        rank = rank.repeat_interleave(classes)
    return Block(rank, *parts, rows=constants.rows)


@dataclass
class Solution:
    """Results by pair, flat [L * C], latents in the order of the layout that solved them."""

    b: Tensor
    w: Tensor
    evals: Tensor
    gmax: Tensor
    reason: Tensor
    latents: int

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
            latents=latents,
        )

    def store(self, pair: Tensor, **values: Tensor) -> None:
        """Write the named fields of the pairs with the given indices (any shape)."""
        for name, value in values.items():
            into = getattr(self, name)
            into[pair.reshape(-1)] = value.expand(pair.shape).reshape(-1).to(into.dtype)

    def by_latent(self, order: Tensor | None) -> dict[str, Tensor]:
        """Matrices [L, C] with latents in their original order; `order[rank]` is the latent at that rank."""
        found = {}
        for field in fields(self):
            if field.name == "latents":
                continue
            matrix = getattr(self, field.name).view(self.latents, -1)
            if order is not None:
                matrix = torch.empty_like(matrix).index_copy_(0, order, matrix)
            found[field.name] = matrix
        return found
