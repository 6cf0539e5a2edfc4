"""Modules in the place of decomposed ones, for passes without hooks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from perfsweep.workloads.spd.maths.components import Operands
from perfsweep.workloads.spd.maths.masked_products import (
    Call,
    SiteMask,
    UnmaskedForm,
    folded,
    folded_rows,
    with_bias,
    with_delta,
)
from perfsweep.workloads.spd.maths.sites import Site

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
