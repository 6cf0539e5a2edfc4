"""By how much sums over events may be off, at most: what certifies pairs without float64 sums over events.

Nodes. Two-point Gauss quadrature of f over c events in an interval misses f''''(xi) / 4! times the integral
of the squared polynomial with the nodes as roots. Every derivative of the logistic function mu is at most s =
mu (1 - mu) up to the fifth, and s is largest where |eta| is least. So the sums of mu, mu x, s, s x and s x^2
miss no more of a bin than s w^4, s (|x| w^4 + 4 |w|^3) and s (x^2 w^4 + 8 |x| |w|^3 + 12 w^2) times its load.

Rounding. Float32 eta is off by two roundings of |b| + |w x|, and mu and s change by no larger a share than
eta by value. Every other rounding adds no more: STEPS, and one for each addition of the longest sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.maths.compress import Bins
from perfsweep.workloads.probe1d.maths.derivatives import EventSums

PIECE = 2**16
"""Bins of pairs that are bounded at once: their temporaries stay in the second-level cache."""
STEPS = 32
"""Float32 roundings of a term, those of eta left out, and of joined sums."""
ROUNDING = torch.finfo(torch.float32).eps / 2
TRUSTED = 1e-8
"""Determinant over the product of the diagonal below which a raw Hessian in float64 says too little: the
centred one decides."""


@dataclass(frozen=True)
class SumErrors:
    """Bounds, float64 [R, 1] each, of the error of m0 and a0, of that of m1 and a1, and of that of a2."""

    zeroth: Tensor
    first: Tensor
    second: Tensor

    @classmethod
    def none(cls, like: Tensor) -> SumErrors:
        """Bounds of float64 sums over events."""
        return cls(*(torch.zeros_like(like) for _ in range(3)))

    @classmethod
    def of_nodes(cls, bins: Bins, latent: Tensor, b: Tensor, w: Tensor) -> SumErrors:
        """Bounds at (b, w), [R, 1] each, of pairs whose ranks `latent` int64 [R] names, ascending."""
        # Ranks before the first compressed one keep their events.
        exact = int((latent < bins.first).sum())
        parts = [torch.zeros((3, exact), dtype=torch.float64, device=b.device)]
        pairs = max(1, PIECE // bins.mid.shape[1])
        for start in range(exact, latent.numel(), pairs):
            part = slice(start, start + pairs)
            parts.append(_missed(bins, latent[part] - bins.first, b[part], w[part]))
        return cls(*(bound.unsqueeze(1) for bound in torch.cat(parts, 1)))

    @classmethod
    def of_rounding(
        cls, sums: EventSums, b: Tensor, w: Tensor, reach: Tensor, additions: Tensor, positive: Tensor
    ) -> SumErrors:
        """Bounds of float32 `sums` whose longest takes some `additions`.

        Rows have |x| up to `reach`, and x > 0 where `positive`; [R, 1] all.
        """
        assert sums.m1 is not None
        share = ROUNDING * (STEPS + additions + 2 * (b.abs() + w.abs() * reach))
        # The sum of mu |x|, which is no less than that of s |x|.
        size = torch.where(positive, sums.m1.abs(), reach * sums.m0)
        return cls(share * sums.m0, share * size, share * sums.a2)

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
