"""From importances and sources to the divergence of one masked pass.

A moment holds what one microbatch has computed once; a pass is asked for as importances, sources, deltas and
routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from perfsweep.workloads.spd.maths.components import Operands
from perfsweep.workloads.spd.maths.divergence import Divergence
from perfsweep.workloads.spd.maths.masked_products import SiteMask
from perfsweep.workloads.spd.maths.patching import Patching
from perfsweep.workloads.spd.maths.random_draws import Routes
from perfsweep.workloads.spd.maths.sites import Stacks, each, unstack


@dataclass
class Moment:
    """One microbatch.

    Attributes
    ----------
    batch : token ids [B, S] or vectors [B, f]
    inputs : what each module reads in the target
    between : what each stage of the target reads, where passes begin in the middle
    divergence : from the target's output
    lower, upper : importances for masks and for minimality
    operands : V, U and, unless folded, D of each module
    """

    batch: Tensor
    inputs: dict[str, Tensor]
    between: list[Tensor]
    divergence: Divergence
    lower: Stacks = field(default_factory=dict)
    upper: Stacks = field(default_factory=dict)
    operands: dict[str, Operands] = field(default_factory=dict)

    @property
    def lead(self) -> torch.Size:
        """Dimensions of positions: [B, S], or [B] for vectors."""
        return self.batch.shape if not self.batch.is_floating_point() else self.batch.shape[:-1]


@dataclass
class Masking:
    """What the masks of a pass are made from.

    Attributes
    ----------
    lower : importances [..., C]
    sources : s [..., C], broadcast over positions; None for masks equal to the importances
    deltas : mu [...]; None where deltas take no part
    routes : by module; None for all positions
    names : modules that are replaced; None for all
    rows : in place of routes, the numbers of the routed positions
    """

    lower: Stacks
    sources: Stacks | None = None
    deltas: Stacks | None = None
    routes: Routes | None = None
    names: tuple[str, ...] | None = None
    rows: Routes | None = None


@dataclass(frozen=True)
class Where:
    """Where a pass begins."""

    first: int = 0
    hidden: Tensor | None = None


def blend(lower: Tensor, source: Tensor) -> Tensor:
    """m = ci + (1 - ci) s"""
    return lower + (1 - lower) * source


def make_masks(masking: Masking, inside: bool = False) -> dict[str, SiteMask]:
    """Masks of a pass by module; `inside` hands sources and importances over, to blend in the product."""
    if masking.sources is None:
        return masks_of(masking)
    if masking.rows is not None:
        return masks_of_rows(masking, masking.rows, inside)
    if not inside:
        return masks_of(masking)
    lower, sources = (unstack(chosen(stacks, masking.names)) for stacks in (masking.lower, masking.sources))
    deltas, routes = unstack(chosen(masking.deltas or {}, masking.names)), masking.routes or {}
    return {
        name: SiteMask(lower[name], deltas.get(name), routes.get(name), source=sources[name])
        for name in lower
    }


def masks_of(masking: Masking) -> dict[str, SiteMask]:
    """Masks of all positions."""
    lower, deltas = chosen(masking.lower, masking.names), unstack(chosen(masking.deltas or {}, masking.names))
    stacks = lower if masking.sources is None else each(blend, lower, chosen(masking.sources, masking.names))
    masks, routes = unstack(stacks), masking.routes or {}
    return {
        name: SiteMask(masks[name], deltas.get(name), routes.get(name))
        for name in masking.names or tuple(masks)
    }


def masks_of_rows(masking: Masking, rows: Mapping[str, Tensor], inside: bool = False) -> dict[str, SiteMask]:
    """Masks of some positions, given by their numbers, by module."""
    assert masking.sources is not None
    lower, sources, deltas = unstack(masking.lower), unstack(masking.sources), unstack(masking.deltas or {})
    found = {}
    for name, numbers in rows.items():
        ci = lower[name].flatten(0, -2).index_select(0, numbers)
        source = pick(sources[name].flatten(0, -2), numbers)
        delta = pick(deltas[name].flatten(), numbers) if deltas else None
        masks = (ci, source) if inside else (blend(ci, source), None)
        found[name] = SiteMask(masks[0], delta, None, numbers, masks[1])
    return found


def rows_of(route: Tensor) -> Tensor:
    """Numbers of the routed positions [R]. Host tensors only: a device would make the host wait."""
    return torch.from_numpy(route.numpy().reshape(-1).nonzero()[0])


def pick(tensor: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a tensor; one row that is shared by all stays one."""
    return tensor if len(tensor) == 1 else tensor.index_select(0, rows)


def chosen(stacks: Stacks, names: tuple[str, ...] | None) -> Stacks:
    """The parts of single modules, or everything as it is."""
    if names is None or not stacks:
        return stacks
    parts = {name: (key, k) for key in stacks for k, name in enumerate(key)}
    keys = {name: parts[name] for name in names}
    return {(name,): stacks[key] if len(key) == 1 else stacks[key][k] for name, (key, k) in keys.items()}


class Passes:
    """Masked passes as the toggles have them.

    Parameters
    ----------
    reuse : begin at the first stage that holds a replaced module
    inside : sources are blended with importances inside the product
    """

    def __init__(self, patching: Patching, reuse: bool, inside: bool = False) -> None:
        self.patching, self.reuse, self.inside = patching, reuse, inside

    def divergence(self, moment: Moment, masking: Masking, operands: Mapping[str, Operands]) -> Tensor:
        """Sum over positions of the divergence of the masked output []."""
        masks = make_masks(masking, self.inside)
        return moment.divergence.sum(self.output(moment, masks, operands))

    def output(
        self, moment: Moment, masks: Mapping[str, SiteMask], operands: Mapping[str, Operands]
    ) -> Tensor:
        """The masked output."""
        where = self.where(moment, tuple(masks))
        return self.patching.masked(moment.batch, masks, operands, first=where.first, hidden=where.hidden)

    def inputs(
        self, moment: Moment, masks: Mapping[str, SiteMask], operands: Mapping[str, Operands]
    ) -> dict[str, Tensor]:
        """What each module reads under masks."""
        return self.patching.masked_cached(moment.batch, masks, operands)[1]

    def where(self, moment: Moment, names: tuple[str, ...]) -> Where:
        """Where a pass that replaces these modules may begin: everything before it is as in the target."""
        if not self.reuse:
            return Where()
        stages = [self.patching.sites[name].stage for name in names]
        if None in stages or not stages:
            return Where()
        first = min(stage for stage in stages if stage is not None)
        return Where(first, moment.between[first])
