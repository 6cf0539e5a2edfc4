"""What sums over nodes can miss of sums over events, at most: so pairs are certified without their events.

Two-point Gauss quadrature of f over c events in an interval misses f''''(xi) / 4! times the integral of the
squared polynomial with the nodes as roots. Every derivative of the logistic function mu is at most s = mu (1 -
mu) up to the fifth, and s is largest where |eta| is least. So the sums of mu, mu x, s, s x and s x^2 miss no
more of a bin than s w^4, s (|x| w^4 + 4 |w|^3) and s (x^2 w^4 + 8 |x| |w|^3 + 12 w^2) times its load.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from workloads.probe1d.maths.compress import Bins

PIECE = 2**16
"""Bins of pairs that are bounded at once: their temporaries stay in the second-level cache."""


@dataclass(frozen=True)
class SumErrors:
    """Bounds, [R, 1] each, of what m0 and a0 miss, of what m1 and a1 miss, and of what a2 misses."""

    zeroth: Tensor
    first: Tensor
    second: Tensor

    @classmethod
    def none(cls, like: Tensor) -> SumErrors:
        """Bounds of sums over the events themselves."""
        return cls(*(torch.zeros_like(like) for _ in range(3)))

    @classmethod
    def of(cls, bins: Bins, latent: Tensor, b: Tensor, w: Tensor) -> SumErrors:
        """Bounds at (b, w), [R, 1] each, of pairs whose ranks `latent` int64 [R] names, ascending."""
        # Ranks before the first compressed one keep their events.
        exact = int((latent < bins.first).sum())
        parts = [torch.zeros((3, exact), dtype=torch.float64, device=b.device)]
        pairs = max(1, PIECE // bins.mid.shape[1])
        for start in range(exact, latent.numel(), pairs):
            part = slice(start, start + pairs)
            parts.append(_missed(bins, latent[part] - bins.first, b[part], w[part]))
        return cls(*(bound.unsqueeze(1) for bound in torch.cat(parts, 1)))

    def times(self, unit: float) -> SumErrors:
        """The same of sums times `unit`."""
        return SumErrors(self.zeroth * unit, self.first * unit, self.second * unit)


def _missed(bins: Bins, row: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """Bounds [3, r] of the pairs of some rows of the bins."""
    mid, half, slope = bins.mid.index_select(0, row), bins.half.index_select(0, row), w.abs()
    t = torch.exp(-((b + w * mid).abs() - slope * half).clamp(min=0))
    largest = mid.abs() + half
    zeroth = bins.load.index_select(0, row) * t / (1 + t) ** 2
    first = zeroth * largest
    s0, s1, s2 = (sums.sum(1) for sums in (zeroth, first, first * largest))
    u = slope.squeeze(1)
    return u * u * torch.stack([u * u * s0, u * (u * s1 + 4 * s0), u * (u * s2 + 8 * s1) + 12 * s0])
