"""Latents whose values are large against their spread: what float32 in raw coordinates cannot tell apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import softplus

from perfsweep.workloads.probe1d.data.problem import EQUAL, Constants, Csr, Labels
from perfsweep.workloads.probe1d.maths.blocks import Block
from perfsweep.workloads.probe1d.maths.buckets import to_csc
from perfsweep.workloads.probe1d.maths.prepared_rows import PreparedRows

FLOAT32_SUM = 1e-7
"""Relative error of a float32 sum."""
ILL_CONDITIONED = 1e-3
"""Variance over squared mean below which float32 lanes see little of a latent but its mean."""


def ill_conditioned(constants: Constants) -> Tensor:
    """Latents whose values are nearly one value, or are one in every row, bool [L].

    One value among silent rows is well conditioned: two groups of rows determine b and w well.
    """
    share = (constants.deviation / constants.mean.abs().clamp(min=1e-300)).square()
    spread = (share > EQUAL**2) | (constants.count == constants.rows)
    return (constants.count > 0) & (share <= ILL_CONDITIONED) & spread


def beyond_lanes(block: Block, ill: Tensor) -> Tensor:
    """Pairs that are left to float64, bool [R, c].

    Those of `ill`-conditioned latents [L]; and those of classes of no row or of all rows, which are at their
    optimum, the prior, where they start: rounding in float32 hides that.
    """
    one_label = (block.positives == 0) | (block.positives == block.rows)
    return one_label | ill.index_select(0, block.latent).unsqueeze(1)


def above_rounding(block: Block, decrement: float) -> Block:
    """The block with a ridge that bounds what float32 rounding of sums less hits adds to a Newton decrement.

    Without it, a pair whose hits are all saturated, which leaves no curvature, is pushed ever further out.
    """
    rounding = FLOAT32_SUM * block.hits * block.scale / block.rows
    return replace(block, ridge_w=torch.maximum(block.ridge_w, rounding.square() / decrement))


def with_exact_losses(
    loss: Tensor, rows: PreparedRows, columns: Tensor, b: Tensor, w: Tensor, exact: Tensor
) -> Tensor:
    """`loss` [L, c] with that of the `exact` latents [L] summed again in float64, where b and w x cancel."""
    places = exact.nonzero().squeeze(1)
    latents = places if rows.order is None else rows.order[places]
    positives = rows.constants.positives[columns]
    loss = loss.clone()
    events = events_of(rows.x, rows.labels, rows.grid[columns], latents)
    for place, (x, y) in zip(places.tolist(), events, strict=True):
        own_b, own_w = b[place].double(), w[place].double()
        eta = own_b + own_w * x
        silent = (rows.x.rows - x.shape[0]) * softplus(own_b) - (positives - y.sum(0)) * own_b
        loss[place] = (((softplus(eta) - y * eta).sum(0) + silent) / rows.x.rows).to(loss.dtype)
    return loss


def events_of(x: Csr, labels: Labels, grid: Tensor, latents: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Values [n, 1] and labels [n, c] of the events of each of the `latents`, float64."""
    if not latents.numel():
        return
    events = to_csc(_only(x, latents), with_rows=True)
    assert events.rows is not None
    for start, stop in pairwise(events.indptr.tolist()):
        own = labels.at(events.rows[start:stop].long())
        yield events.values[start:stop, None].double(), own.dense(grid, torch.float64)


def _only(x: Csr, latents: Tensor) -> Csr:
    """The activations of some latents, numbered in the order given."""
    number = torch.full((x.latents,), -1, dtype=torch.int64, device=x.indices.device)
    number[latents] = torch.arange(latents.numel(), device=number.device)
    kept = number[x.indices.long()] >= 0
    ends = torch.bincount(x.row_index()[kept], minlength=x.rows).cumsum(0)
    pointers = torch.cat([ends.new_zeros(1), ends])
    return Csr(pointers, number[x.indices.long()][kept], x.values[kept], latents.numel())
