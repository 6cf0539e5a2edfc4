"""Latents whose values are large beside their spread: what float32 in raw coordinates cannot tell apart."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from perfsweep.workloads.probe1d.data.problem import Constants, Csr
from perfsweep.workloads.probe1d.maths.blocks import Block
from perfsweep.workloads.probe1d.maths.buckets import to_csc
from perfsweep.workloads.probe1d.maths.prepared_rows import PreparedRows

ILL_CONDITIONED = 1e-3
"""Variance over squared mean below which float32 lanes see little of a latent but its mean."""
SPREADLESS = 1e-13
"""The same below which values are one value: sums of squares in float64 tell no more."""


def ill_conditioned(constants: Constants) -> Tensor:
    """Latents whose values are nearly one value, or are one in every row, bool [L].

    One value beside silent rows is well conditioned: two groups of rows determine b and w well.
    """
    count = constants.count.clamp(min=1)
    mean = constants.sum_x / count
    share = (constants.sum_xx / count - mean * mean) / (mean * mean).clamp(min=1e-300)
    spread = (share > SPREADLESS) | (constants.count == constants.rows)
    return (constants.count > 0) & (share <= ILL_CONDITIONED) & spread


def beyond_lanes(block: Block, ill: Tensor) -> Tensor:
    """Pairs that are left to float64, bool [R, c].

    Those of `ill`-conditioned latents [L]; and those of classes of no row or of all rows, which are at their
    optimum, the prior, where they start: rounding in float32 hides that.
    """
    one_label = (block.positives == 0) | (block.positives == block.rows)
    return one_label | ill.index_select(0, block.latent).unsqueeze(1)


def with_exact_losses(loss: Tensor, rows: PreparedRows, columns: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """`loss` [L, c] with that of ill-conditioned latents summed anew in float64, where b and w x cancel."""
    places = ill_conditioned(rows.constants).nonzero().squeeze(1)
    if not places.numel():
        return loss
    latents = places if rows.order is None else rows.order[places]
    events = to_csc(_only(rows.x, latents), with_rows=True)
    assert events.rows is not None
    labels = rows.labels.dense(rows.grid[columns], torch.float64)
    positives = rows.constants.positives[columns]
    loss = loss.clone()
    for number, place in enumerate(places.tolist()):
        part = slice(int(events.indptr[number]), int(events.indptr[number + 1]))
        x, y = events.values[part, None].double(), labels[events.rows[part].long()]
        own_b, own_w = b[place].double(), w[place].double()
        eta = own_b + own_w * x
        silent = (rows.x.rows - x.shape[0]) * softplus(own_b) - (positives - y.sum(0)) * own_b
        loss[place] = (((softplus(eta) - y * eta).sum(0) + silent) / rows.x.rows).to(loss.dtype)
    return loss


def _only(x: Csr, latents: Tensor) -> Csr:
    """The activations of some latents, numbered in the order given."""
    number = torch.full((x.latents,), -1, dtype=torch.int64, device=x.indices.device)
    number[latents] = torch.arange(latents.numel(), device=number.device)
    kept = number[x.indices.long()] >= 0
    ends = torch.bincount(x.row_index()[kept], minlength=x.rows).cumsum(0)
    pointers = torch.cat([ends.new_zeros(1), ends])
    return Csr(pointers, number[x.indices.long()][kept], x.values[kept], latents.numel())
