"""From a pre-sigmoid importance to a mask, and from a mask to the output of a decomposed module.

Plain form: ``comp = (m * x V) U + mu (x D^T) + b`` and ``out = where(r, comp, y + b)`` with y = x W^T.
Folded: x D^T is y - (x V) U, hence ``z = ((m - mu) * x V) U + mu y`` and ``out = where(r, z, y) + b``: no D,
no product with it, and no gradient through it. With m = mu = 1 the folded form is y + b to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from perfsweep.workloads.spd.maths.sites import Operands, Site, bias_of

LEAK = 0.01
"""Slope of a leaky clamp outside [0, 1]."""

Sigmoid = Callable[[Tensor], Tensor]


class _LowerLeaky(torch.autograd.Function):
    """clamp(g, 0, 1); below 0 the gradient leaks where a step would raise g, to revive dead components."""

    @staticmethod
    def forward(ctx: Any, g: Tensor) -> Tensor:
        ctx.save_for_backward(g)
        return g.clamp(0.0, 1.0)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> Tensor:
        (g,) = ctx.saved_tensors
        return lower_leaky_gradient(incoming[0], g)


def lower_leaky_gradient(incoming: Tensor, g: Tensor) -> Tensor:
    """What `lower_leaky` hands on of a gradient, at g."""
    # A negative gradient makes a step raise g: only that leaks, so nothing pushes g further down.
    return torch.where(g <= 0, LEAK * incoming.clamp(max=0.0), torch.where(g <= 1, incoming, 0.0))


def lower_leaky(g: Tensor) -> Tensor:
    """For masks."""
    return _LowerLeaky.apply(g)  # type: ignore[return-value]


def upper_leaky(g: Tensor) -> Tensor:
    """For the minimality loss: leaks above 1, so that a saturated importance can come down."""
    return torch.where(g > 1, 1 + LEAK * (g - 1), g.clamp(min=0.0))


def hard(g: Tensor) -> Tensor:
    """clamp(g, 0, 1)"""
    return g.clamp(0.0, 1.0)


FORMS: dict[str, tuple[Sigmoid, Sigmoid]] = {
    "leaky_hard": (lower_leaky, upper_leaky),
    "normal": (torch.sigmoid, torch.sigmoid),
    "hard": (hard, hard),
}
"""Lower and upper form by the name that upstream has for the pair."""


def shaken(g: Tensor, u: Tensor) -> Tensor:
    """1.05 g - 0.05 u, what masks are made from where their sources are zeros and ones."""
    # Importances near one are then below it now and then, so that binomial sources still reach them.
    return 1.05 * g - 0.05 * u


@dataclass
class SiteMask:
    """How one module computes in a masked pass.

    Attributes
    ----------
    mask : m [..., C] in [0, 1]; None for all ones
    delta : mu [...] in [0, 1]; None where the delta takes no part
    route : r [...] bool, positions that run through components; None for all
    rows : the routed positions as numbers [R] into the flattened ones. `mask` and `delta` then hold these
        rows only, [R, C] and [R], and the module multiplies nothing else
    """

    mask: Tensor | None
    delta: Tensor | None = None
    route: Tensor | None = None
    rows: Tensor | None = None


@dataclass
class Call:
    """State of one pass.

    Attributes
    ----------
    masks, operands : by module, for the modules that are replaced
    inputs : takes what modules read, in execution order; None where nothing asked
    """

    masks: Mapping[str, SiteMask] = field(default_factory=dict)
    operands: Mapping[str, Operands] = field(default_factory=dict)
    inputs: dict[str, Tensor] | None = None


def check_waiting(mask: Tensor) -> None:
    """Refuse values outside [0, 1]; the host waits twice, once for each end.

    The upstream project compares ``t.all() <= 1``, which is true of any mask. What is no number passes: it
    makes a loss that is none, which is refused with its name and step.

    Raises
    ------
    ValueError
        A value is out of range.
    """
    if bool((mask < 0).any()) or bool((mask > 1).any()):
        raise ValueError("a mask must lie in [0, 1]; its sources or importances are out of range")


UnmaskedForm = Callable[[Tensor, Site, Operands], Tensor]
"""From x to x V U [..., out]."""


def two_step(x: Tensor, site: Site, operands: Operands) -> Tensor:
    """By two products, C (in + out) multiplications a position."""
    return site.read(x, operands.V) @ operands.U


def fused(x: Tensor, site: Site, operands: Operands) -> Tensor:
    """By one product with V U: in*out multiplications a position, and once for all positions C*in*out."""
    return site.read(x, operands.V @ operands.U)


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
    mu = mask.delta.unsqueeze(-1) if mask.delta is not None and y is not None else None
    if mu is None or y is None:
        return with_delta(x, site, Operands(operands.V, operands.U), SiteMask(mask.mask), unmasked)
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


SIZES = ("in_features", "out_features", "num_embeddings", "embedding_dim", "padding_idx", "nf", "nx")


@dataclass
class Slot:
    """Where wrapped modules find the call in force."""

    call: Call | None = None


class Wrapped(nn.Module):
    """A module in the place of a leaf, with the leaf's own parameters under their own names.

    ``y = x W^T`` is computed once and without bias; what is built from it depends on the call in force.

    Parameters
    ----------
    folds : deltas are folded into the sum instead of multiplied with
    """

    def __init__(self, leaf: nn.Module, site: Site, slot: Slot, unmasked: UnmaskedForm, folds: bool) -> None:
        super().__init__()
        for name, parameter in leaf.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        self.site, self.slot, self.unmasked, self.folds = site, slot, unmasked, folds
        for name in SIZES:  # networks ask their layers
            if hasattr(leaf, name):
                setattr(self, name, getattr(leaf, name))

    def forward(self, x: Tensor) -> Tensor:
        call = self.slot.call
        if call is not None and call.inputs is not None:
            call.inputs[self.site.name] = x
        mask = call.masks.get(self.site.name) if call is not None else None
        if call is None or mask is None:
            return with_bias(self.site.base(x, self), self)
        return with_bias(self._components(x, call.operands[self.site.name], mask), self)

    def _components(self, x: Tensor, operands: Operands, mask: SiteMask) -> Tensor:
        routed = mask.route is not None or mask.rows is not None
        y = self.site.base(x, self) if routed or (self.folds and mask.delta is not None) else None
        if mask.rows is not None and y is not None:
            return folded_rows(x, y, self.site, operands, mask, self.unmasked)
        if self.folds:
            z = folded(x, y, self.site, operands, mask, self.unmasked)
        else:
            z = with_delta(x, self.site, operands, mask, self.unmasked)
        return z if y is None or mask.route is None else torch.where(mask.route.unsqueeze(-1), z, y)


def put(target: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module in the place of another."""
    parent, _, leaf = name.rpartition(".")
    setattr(target.get_submodule(parent), leaf, module)
