"""Subcomponents: V [in, C] and U [C, out] of each site, their product, and what it leaves of the weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from perfsweep.workloads.spd.maths.sites import Site


@dataclass
class Operands:
    """What a masked pass multiplies with at one site.

    Attributes
    ----------
    V, U : [in, C] and [C, out]
    delta : D = W - (V U)^T [out, in], None where it is folded into the sum or not wanted
    """

    V: Tensor
    U: Tensor
    delta: Tensor | None = None

    def detached(self) -> Operands:
        """The same values without a graph."""
        return Operands(self.V.detach(), self.U.detach(), None if self.delta is None else self.delta.detach())


class Components(nn.Module):
    """V and U of one site, float32, normal with std 1/sqrt(fan)."""

    def __init__(self, site: Site, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.V = nn.Parameter(normal((site.d_in, site.count), site.d_in, generator, dtype))
        self.U = nn.Parameter(normal((site.count, site.d_out), site.count, generator, dtype))

    @property
    def weight(self) -> Tensor:
        """(V U)^T [out, in]"""
        return (self.V @ self.U).T


def normal(
    shape: Sequence[int], fan: int, generator: torch.Generator, dtype: torch.dtype, gain: float = 1.0
) -> Tensor:
    """Normal numbers with std gain/sqrt(fan), drawn on the host so that every device starts alike."""
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * (gain / math.sqrt(fan))).to(dtype)
