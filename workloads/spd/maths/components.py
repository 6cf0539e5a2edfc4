"""Subcomponents: V [in, C] and U [C, out] of each site, their product, and what it leaves of the weight."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from perfsweep.workloads.spd.maths.sites import Site, weight_of
from perfsweep.workloads.spd.maths.target import Target


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


class Deltas:
    """D of every site; each call looks the frozen weights up in the target."""

    def __init__(self, target: Target, sites: Sequence[Site], counts: Counter[str]) -> None:
        self._target, self._sites, self._counts = target, sites, counts

    def weight(self, site: Site) -> Tensor:
        """W [out, in]."""
        self._counts["weight_fetches"] += 1
        return weight_of(self._target.get_submodule(site.name), site.kind, site.d_in)

    def all(self, components: Mapping[str, Operands]) -> dict[str, Tensor]:
        """D by name, with gradients towards V and U. Autocast is off: rounding would drown what is left."""
        device_type = next(iter(components.values())).V.device.type
        with torch.autocast(device_type, enabled=False):
            return {site.name: self._one(site, components[site.name]) for site in self._sites}

    def _one(self, site: Site, operands: Operands) -> Tensor:
        return self.weight(site).to(operands.V) - (operands.V @ operands.U).T


class CachedDeltas(Deltas):
    """Fetches each weight once.

    The field report caches by ``functools.lru_cache`` on the method, which keeps the model alive as long as
    the class and goes on serving old weights after a reload. This cache belongs to the object and is emptied
    by `forget`.
    """

    def __init__(self, target: Target, sites: Sequence[Site], counts: Counter[str]) -> None:
        super().__init__(target, sites, counts)
        self._weights: dict[str, Tensor] = {}

    def weight(self, site: Site) -> Tensor:
        """W [out, in], looked up at the first call."""
        if site.name not in self._weights:
            self._weights[site.name] = super().weight(site)
        return self._weights[site.name]

    def forget(self) -> None:
        """Look weights up again: the target has been loaded again."""
        self._weights.clear()
