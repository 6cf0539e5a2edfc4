"""By how much sums over events may be off, at most: what certifies pairs without float64 sums over events.

Float32 eta is off by two roundings of |b| + |w x|, and mu and s change by no larger a share than
eta by value. Every other rounding adds no more: STEPS, and one for each addition of the longest sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.maths.derivatives import EventSums

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
