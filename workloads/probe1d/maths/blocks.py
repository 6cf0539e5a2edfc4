"""Blocks of pairs: a slab's constants in the shape that evaluators and solvers take, [R, c].

R rows of pair state, each one latent, by c classes; a flat list of pairs is a block with c = 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import IntEnum

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.data.problem import Constants


def slabs(classes: int, size: int | str) -> Iterator[Tensor]:
    """Grid columns in slabs of `size` classes ("all": one slab); the last slab may be shorter."""
    width = classes if size == "all" else min(int(size), classes)
    return iter(torch.arange(classes).split(width))


def rows_at(values: Tensor, keep: Tensor) -> Tensor:
    """The rows of [R] or [R, c] named by the int64 index `keep`; a column goes as a list, thrice as fast."""
    if values.dim() == 2 and values.shape[1] == 1:
        return values.reshape(-1).index_select(0, keep).unsqueeze(1)
    return values.index_select(0, keep)


@dataclass(frozen=True)
class Block:
    """Constants of a block of pairs, all [R, c] or broadcastable to it, in the type of its sums.

    `latent` int64 [R] is the row's latent, `pair` int64 [R, c] its index in the grid of all pairs; `ridge_w`
    and `ridge_b` weigh the objective's penalty, see `Constants`.
    """

    latent: Tensor
    pair: Tensor
    count: Tensor
    zeros: Tensor
    positives: Tensor
    prior: Tensor
    hits: Tensor
    hit_sum: Tensor
    scale: Tensor
    ridge_w: Tensor
    ridge_b: float
    rows: int

    def select(self, keep: Tensor) -> Block:
        """The rows named by the int64 index `keep`."""
        names = ("latent", "pair", *_CONSTANTS)
        return replace(self, **{name: rows_at(getattr(self, name), keep) for name in names})

    def double(self) -> Block:
        """The same constants in float64."""
        return replace(self, **{name: getattr(self, name).double() for name in _CONSTANTS})

    def unpenalised(self) -> Block:
        """The same pairs, of which the loss alone counts."""
        return replace(self, ridge_w=torch.zeros_like(self.ridge_w), ridge_b=0.0)


_CONSTANTS = ("count", "zeros", "positives", "prior", "hits", "hit_sum", "scale", "ridge_w")


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
    columns = columns.to(constants.count.device)
    rank = torch.arange(first, constants.count.numel(), device=columns.device)
    parts = _parts(constants, rank, columns, slots, dtype)
    if flat:
        parts = [part.reshape(-1, 1) for part in parts]
        rank = rank.repeat_interleave(columns.numel())
    return Block(rank, *parts, ridge_b=constants.ridge_b, rows=constants.rows)


def _parts(
    constants: Constants, rank: Tensor, columns: Tensor, slots: Tensor, dtype: torch.dtype
) -> list[Tensor]:
    """Pair numbers and constants of the last latents, by rank, as [latents, classes]."""
    shape = (rank.numel(), columns.numel())
    first = constants.count.numel() - rank.numel()
    pair = rank[:, None] * constants.positives.numel() + columns

    def by_latent(values: Tensor) -> Tensor:
        return values[first:].to(dtype)[:, None].expand(shape)

    def by_class(values: Tensor) -> Tensor:
        return values.index_select(0, columns).to(dtype)[None, :].expand(shape)

    def by_pair(values: Tensor) -> Tensor:
        return values[first:].index_select(1, columns).to(dtype)

    return [
        pair,
        by_latent(constants.count),
        by_latent(constants.rows - slots),
        by_class(constants.positives),
        by_class(constants.prior),
        by_pair(constants.hits),
        by_pair(constants.hit_sum),
        by_latent(constants.scale),
        by_latent(constants.ridge_w),
    ]


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
