"""The output of one decomposed module, as the reports have it and folded.

Plain form: ``comp = (m * x V) U + mu (x D^T) + b`` and ``out = where(r, comp, y + b)`` with y = x W^T.
Folded: x D^T is y - (x V) U, hence ``z = ((m - mu) * x V) U + mu y`` and ``out = where(r, z, y) + b``: no D,
no product with it, and no gradient through it. With m = mu = 1 the folded form is y + b to the bit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from workloads.spd.maths.components import Operands
from workloads.spd.maths.masks import SiteMask
from workloads.spd.maths.sites import Site, bias_of


class WeightedActivation(torch.autograd.Function):
    """(ci + (1 - ci) s - mu) * a as one node: four operations instead of ten, and each gradient by one or
    two.

    Shapes: a, ci [..., C]; s [..., C] and mu [..., 1], which broadcast over positions where sources are
    shared.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, ci: Tensor, s: Tensor, mu: Tensor) -> Tensor:
        weight = torch.lerp(ci, ci.new_ones(()), s.to(ci.dtype)).sub_(mu)
        ctx.save_for_backward(a, ci, s, weight)
        ctx.delta_shape = mu.shape
        return weight * a

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor | None, ...]:
        a, ci, s, weight = ctx.saved_tensors
        wants_a, wants_ci, wants_s, wants_mu = ctx.needs_input_grad
        grad = incoming[0]
        inner = grad * a if wants_ci or wants_s or wants_mu else grad
        return (
            (grad * weight).to(a.dtype) if wants_a else None,
            torch.addcmul(inner, inner, s, value=-1) if wants_ci else None,
            torch.addcmul(inner, inner, ci, value=-1).sum_to_size(s.shape) if wants_s else None,
            -inner.sum(-1, keepdim=True).sum_to_size(ctx.delta_shape) if wants_mu else None,
        )


class UnmaskedForm:
    """Components without a mask: by two products, by one with V U, or by what costs less.

    Two products cost C (in + out) multiplications a position, one in*out and once for all positions C*in*out.
    """

    def __init__(self, level: str) -> None:
        self.level = level

    def __call__(self, x: Tensor, site: Site, operands: Operands) -> Tensor:
        """x V U [..., out]."""
        if self._fuses(site, site.positions(x).numel()):
            return site.read(x, operands.V @ operands.U)
        return site.read(x, operands.V) @ operands.U

    def _fuses(self, site: Site, positions: int) -> bool:
        if self.level == "by_cost":
            one = site.d_in * site.d_out * (1 + site.count / positions)
            return one < site.count * (site.d_in + site.d_out)
        return self.level == "fused"


def with_delta(x: Tensor, site: Site, operands: Operands, mask: SiteMask, unmasked: UnmaskedForm) -> Tensor:
    """(m * x V) U + mu (x D^T), without bias [..., out]."""
    out = _components(x, site, operands, mask.mask, unmasked)
    if mask.delta is not None and operands.delta is not None:
        out = out + mask.delta.unsqueeze(-1) * site.read(x, operands.delta.T)
    return out


def _components(
    x: Tensor, site: Site, operands: Operands, mask: Tensor | None, unmasked: UnmaskedForm
) -> Tensor:
    if mask is None:
        return unmasked(x, site, operands)
    return (mask * site.read(x, operands.V)) @ operands.U


def folded(
    x: Tensor, y: Tensor | None, site: Site, operands: Operands, mask: SiteMask, unmasked: UnmaskedForm
) -> Tensor:
    """((m - mu) * x V) U + mu y, without bias [..., out]. `y` may be missing where there is no mu."""
    if mask.delta is None or y is None:
        return with_delta(x, site, Operands(operands.V, operands.U), SiteMask(mask.mask), unmasked)
    mu = mask.delta.unsqueeze(-1)
    if mask.source is not None and mask.mask is not None:
        weight = WeightedActivation.apply(site.read(x, operands.V), mask.mask, mask.source, mu)
        return torch.addcmul(weight @ operands.U, mu.to(y.dtype), y)
    weight = (1 - mu if mask.mask is None else mask.mask - mu) * site.read(x, operands.V)
    return weight @ operands.U + mu * y


def folded_rows(
    x: Tensor, y: Tensor, site: Site, operands: Operands, mask: SiteMask, unmasked: UnmaskedForm
) -> Tensor:
    """The folded form at the routed rows only, and y everywhere else, without bias [..., out].

    Under a random subset of modules little more than half of all positions are routed at a module: the
    products of the rest would be computed and thrown away.
    """
    assert mask.rows is not None
    flat = y.flatten(0, -2)
    inputs = (x.flatten() if site.kind == "embedding" else x.flatten(0, -2)).index_select(0, mask.rows)
    z = folded(inputs, flat.index_select(0, mask.rows), site, operands, mask, unmasked)
    return flat.index_copy(0, mask.rows, z.to(flat.dtype)).unflatten(0, y.shape[:-1])


def with_bias(out: Tensor, leaf: nn.Module) -> Tensor:
    """out + b"""
    bias = bias_of(leaf)
    return out if bias is None else out + bias
