"""Separable pairs: one label on all non-zeros, so the optimum lies far out, held by the ridge alone.

Along the way out the gradient falls by e per logit and Newton advances one logit per step. What shortens that
way, and what tells when it is long enough, is here: the start, the metric, the test.
"""

from __future__ import annotations

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.maths.blocks import Block
from perfsweep.workloads.probe1d.maths.derivatives import Derivatives, EventSums

TAIL_LOSS = 1e-6
"""Loss that the non-zeros of a separable pair may have left when it counts as solved."""
PSEUDO_ROWS = 0.02
"""Rows of prior share that smooth the start. A half, the usual choice, leaves pairs without a hit several
logits short."""
FAR = 0.3
"""Share of the tolerance that the non-zeros of a separable pair may still contribute to the gradient at the
start."""


def binary_start(block: Block, sum_x: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    """Start that treats x as present or absent: smoothed shares of positives among zeros and among non-zeros.

    A pair whose non-zeros all have one label has its optimum far out, bounded only by the ridge, and Newton
    advances about a logit per step: it starts where its gradient is already below `tol`. A pair that has all
    its positives among some of its non-zeros starts cold: zeros without a single positive would put b far
    below any optimum. So does a class of no row, or of all: its optimum is its clipped prior. `sum_x` is the
    sum of x over non-zeros, broadcastable to [R, c].
    """
    p0, p1 = _smoothed_shares(block)
    far = (FAR * tol * block.rows / block.count.clamp(min=1)).clamp(max=0.5)
    p1 = torch.where(block.hits == 0, torch.minimum(p1, far), p1)
    p1 = torch.where(block.hits == block.count, torch.maximum(p1, 1 - far), p1)
    b = torch.logit(p0)
    mean = sum_x / block.count.clamp(min=1)
    # Where values of either sign cancel, their mean says nothing of how far w moves a logit.
    reach = torch.where(mean.abs() <= 0.3 * block.scale, block.scale, mean)
    w = (torch.logit(p1) - b) / reach
    inside = (block.hits == block.positives) & (block.hits > 0) & (block.hits < block.count)
    one_label = (block.positives == 0) | (block.positives == block.rows)
    cold = (block.count == 0) | inside | one_label
    return torch.where(cold, block.prior, b), torch.where(cold, torch.zeros_like(w), w)


def _smoothed_shares(block: Block) -> tuple[Tensor, Tensor]:
    """Shares of positives among zeros and among non-zeros, [R, c] each, never 0 or 1."""
    absent = block.rows - block.count
    # Clipped at both ends: a class that never, or always, occurs has no finite logit.
    share = (block.positives / block.rows).clamp(1e-8, 1 - 1e-8)
    among_zeros = (block.positives - block.hits + share * PSEUDO_ROWS) / (absent + 2 * PSEUDO_ROWS)
    among_non_zeros = (block.hits + share * PSEUDO_ROWS) / (block.count + PSEUDO_ROWS)
    return among_zeros.clamp(1e-8, 1 - 1e-8), among_non_zeros.clamp(1e-8, 1 - 1e-8)


def separable_pairs(block: Block) -> Tensor:
    """Pairs whose non-zeros all have one label, bool [R, c]; the block must hold its label sums."""
    return (block.hits == 0) | (block.hits == block.count)


def tail_is_paid(
    block: Block,
    b: Tensor,
    sums: EventSums,
    grad: Derivatives,
    least: Tensor,
    tol: float,
    loss: float | Tensor = TAIL_LOSS,
) -> Tensor:
    """Whether the non-zeros of separable pairs have at most `loss` left, bool [R, c]; true for all others.

    Once events with large x are saturated, gradient and decrement, which they dominate, say nothing about a
    small one whose tail is still ahead. What is left is bounded by the mean probability of the wrong label,
    or, where the ridge holds the optimum itself short of that, shown by a slope that is small even for
    `least`, the smallest |x| of each row.
    """
    # Padding slots are zero rows that the sums hold and `zeros` leaves out; they are no non-zeros.
    padding = block.rows - block.zeros - block.count
    wrong = (sums.m0 - padding * torch.sigmoid(b) - block.hits).abs() / block.rows
    return ~separable_pairs(block) | (wrong <= loss) | (grad.g1.abs() <= tol * least)


def tail_metric(block: Block, grad: Derivatives, scale: Tensor) -> Tensor:
    """Scale of w for the step budget, [R, c]: for separable pairs the mean x of events with weight left.

    Events with large x saturate first. Measured by them, the small ones that still count could move by only a
    fraction of a logit per step.
    """
    # sum s x^2 / sum s x: saturated events have s = 0 and drop out of both.
    left = grad.h2 / grad.h1.abs().clamp(min=1e-300)
    return torch.where(separable_pairs(block), torch.minimum(scale.expand_as(left), left), scale)
