"""From sums over non-zeros to loss, gradient and Hessian of every pair of a block.

All zeros of a latent share one logit, so they enter as a group. Blocks are [R, c], see `blocks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

from perfsweep.workloads.probe1d.maths.blocks import Block
from perfsweep.workloads.probe1d.maths.precision import Precision

CANCELS = 2.0
"""Mean of y eta above which a loss is summed again in float64."""


@dataclass(frozen=True)
class EventSums:
    """Sums over each pair's non-zeros, [R, c]; `residual`, of (mu-y) x, and `labels` on labelled paths only.

    m0, m1: sums of mu, mu x; a0, a1, a2: sums of s, s x, s x^2 with s = mu (1 - mu); loss: sum of softplus,
    or of cross-entropy where labels were gathered.
    """

    m0: Tensor
    a0: Tensor
    a1: Tensor
    a2: Tensor
    m1: Tensor | None = None
    loss: Tensor | None = None
    residual: Tensor | None = None
    labels: Tensor | None = None

    def double(self) -> EventSums:
        """The same sums in float64."""
        parts: dict[str, Any] = {
            name: None if part is None else part.double() for name, part in vars(self).items()
        }
        return EventSums(**parts)


class Evaluator(Protocol):
    """Sums over non-zeros of the pairs in a block."""

    precision: Precision

    def begin(self, columns: Tensor) -> None:
        """Prepare for blocks over the classes at grid positions `columns`."""
        ...

    def sums(self, block: Block, b: Tensor, w: Tensor, with_loss: bool = True) -> EventSums:
        """Sums at (b, w), both [R, c]."""
        ...


@dataclass(frozen=True)
class Derivatives:
    """Loss, gradient and Hessian of each pair, [R, c]."""

    loss: Tensor | None
    g0: Tensor
    g1: Tensor
    h0: Tensor
    h1: Tensor
    h2: Tensor


def combine(block: Block, b: Tensor, w: Tensor, sums: EventSums, unit: float, clip: float) -> Derivatives:
    """Add the zero group and the block's penalty.

    `unit` 1 keeps sums (the report-time form, whose ridge is not scaled along), 1/N gives means; `clip`
    bounds the zero group's probability away from 0 and 1.
    """
    # 1 - clip can round to 1 in float32, which would make the logarithm of the complement infinite.
    mu0 = torch.sigmoid(b).clamp(clip, min(1 - clip, 1 - torch.finfo(b.dtype).eps))
    s0 = mu0 * (1 - mu0)
    g0 = (sums.m0 + block.zeros * mu0 - block.positives) * unit + block.ridge_b * (b - block.prior)
    # Paths that gathered labels summed (mu - y) x; the others subtract the constant sum of y x.
    slope = sums.residual if sums.residual is not None else sums.m1 - block.hit_sum  # pyright: ignore
    g1 = slope * unit + block.ridge_w * w
    h0 = (sums.a0 + block.zeros * s0) * unit + block.ridge_b
    loss = None if sums.loss is None else _loss(block, b, w, sums, mu0, unit)
    return Derivatives(loss, g0, g1, h0, sums.a1 * unit, sums.a2 * unit + block.ridge_w)


def _loss(block: Block, b: Tensor, w: Tensor, sums: EventSums, mu0: Tensor, unit: float) -> Tensor:
    # The report's ridge is one number: its own order of operations keeps every bit.
    both = block.ridge_b / 2 * (w * w + (b - block.prior) ** 2)
    penalty = both if block.ridge_b else block.ridge_w / 2 * (w * w)
    assert sums.loss is not None
    if sums.labels is None:
        # Cross-entropy is softplus(eta) - y eta, and the sums of y and y x over all rows are constants.
        total = sums.loss + block.zeros * softplus(b) - b * block.positives - w * block.hit_sum
        return total * unit + penalty
    # Positive rows that are not among the non-zeros are in the zero group. Labels were counted in float32,
    # hence the clamps.
    positive = torch.minimum((block.positives - sums.labels).clamp(min=0), block.zeros)
    group = -(positive * torch.log(mu0) + (block.zeros - positive) * torch.log1p(-mu0))
    return (sums.loss + group) * unit + penalty


def label_free_loss(block: Block, b: Tensor, w: Tensor, softplus_sum: Tensor) -> Tensor:
    """Mean loss of all rows, [R, c], from the sum of softplus over slots; without a slope none is needed."""
    level = softplus(b)
    total = torch.where(w == 0, block.rows * level, softplus_sum + block.zeros * level)
    return (total - b * block.positives - w * block.hit_sum) / block.rows


def cancels(block: Block, b: Tensor, w: Tensor) -> Tensor:
    """Pairs whose loss float32 does not resolve, bool [R, c]: without labels it is a difference of two sums.

    Float32 rounds by some 1e-7 of their size.
    """
    size = b.abs() * block.positives + (w * block.hit_sum).abs()
    return (size > CANCELS * block.rows) & (w != 0)


def scaled_gradient(block: Block, g0: Tensor, g1: Tensor) -> Tensor:
    """G = max(|g0|, |g1| / scale): the convergence measure that does not depend on a latent's units."""
    return torch.maximum(g0.abs(), g1.abs() / block.scale)
