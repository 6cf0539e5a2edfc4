"""From importances and sources to the divergence of masked passes.

A moment holds what one microbatch has computed once; a pass is asked for as importances, sources, deltas and
routes. `evaluate` runs the passes of a term, which have been drawn and searched for: it draws nothing, so
compiled code may hold all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from perfsweep.workloads.spd.maths.losses import Divergence
from perfsweep.workloads.spd.maths.masked_products import SiteMask
from perfsweep.workloads.spd.maths.random_draws import Routes
from perfsweep.workloads.spd.maths.sites import Operands, Stacks, each, unstack
from perfsweep.workloads.spd.presets import LossSpec


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

    def held_bytes(self) -> int:
        """Bytes of outputs and importances that it keeps alive."""
        tensors = [*self.inputs.values(), *self.lower.values(), *self.upper.values()]
        tensors += [value for value in vars(self.divergence).values() if isinstance(value, Tensor)]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass
class Masking:
    """What the masks of a pass are made from.

    Attributes
    ----------
    lower : importances [..., C]; none yet in a pass that is drawn
    sources : s [..., C], broadcast over positions; None for masks equal to the importances
    deltas : mu [...]; None where deltas take no part
    routes : by module; None for all positions
    names : modules that are replaced; None for all
    rows : in place of routes, the numbers of the routed positions
    """

    lower: Stacks = field(default_factory=dict)
    sources: Stacks | None = None
    deltas: Stacks | None = None
    routes: Routes | None = None
    names: tuple[str, ...] | None = None
    rows: Routes | None = None

    def of(self, lower: Stacks) -> Masking:
        """The same pass with some importances."""
        return Masking(lower, self.sources, self.deltas, self.routes, self.names, self.rows)


def blend(lower: Tensor, source: Tensor) -> Tensor:
    """m = ci + (1 - ci) s"""
    return lower + (1 - lower) * source


def make_masks(masking: Masking) -> dict[str, SiteMask]:
    """Masks of a pass by module."""
    if masking.sources is None or masking.rows is None:
        return masks_of(masking)
    return masks_of_rows(masking, masking.rows)


def masks_of(masking: Masking) -> dict[str, SiteMask]:
    """Masks of all positions."""
    lower, deltas = chosen(masking.lower, masking.names), unstack(chosen(masking.deltas or {}, masking.names))
    stacks = lower if masking.sources is None else each(blend, lower, chosen(masking.sources, masking.names))
    masks, routes = unstack(stacks), masking.routes or {}
    return {
        name: SiteMask(masks[name], deltas.get(name), routes.get(name))
        for name in masking.names or tuple(masks)
    }


def masks_of_rows(masking: Masking, rows: Mapping[str, Tensor]) -> dict[str, SiteMask]:
    """Masks of some positions, given by their numbers, by module."""
    assert masking.sources is not None
    lower, sources, deltas = unstack(masking.lower), unstack(masking.sources), unstack(masking.deltas or {})
    found = {}
    for name, numbers in rows.items():
        ci = lower[name].flatten(0, -2).index_select(0, numbers)
        source = pick(sources[name].flatten(0, -2), numbers)
        delta = pick(deltas[name].flatten(), numbers) if deltas else None
        found[name] = SiteMask(blend(ci, source), delta, None, numbers)
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


def singly(stacks: Stacks) -> Stacks:
    """Every module under its own key; unbound once, since picking from a stack fills zeros for the rest."""
    return {(name,): tensor for name, tensor in unstack(stacks).items()}


class Passes(Protocol):
    """What runs masked passes: an arm, or the inside of compiled code."""

    def divergence(self, moment: Moment, masking: Masking, operands: Mapping[str, Operands]) -> Tensor:
        """Sum over positions of the divergence of the masked output []."""
        ...

    def output(
        self, moment: Moment, masks: Mapping[str, SiteMask], operands: Mapping[str, Operands]
    ) -> Tensor:
        """The masked output."""
        ...

    def inputs(
        self, moment: Moment, masks: Mapping[str, SiteMask], operands: Mapping[str, Operands]
    ) -> dict[str, Tensor]:
        """What each module reads under masks."""
        ...


def evaluate(
    passes: Passes, names: Sequence[str], moment: Moment, spec: LossSpec, drawn: Sequence[Masking]
) -> Tensor:
    """The term of prepared passes, per position or element []."""
    if spec.kind == "unmasked":
        masks = {name: SiteMask(None) for name in names}
        return moment.divergence.mean(passes.output(moment, masks, moment.operands))
    if spec.kind == "hidden_acts":
        return hidden_acts(passes, moment, masks_of(drawn[0].of(moment.lower)))
    lower = moment.lower if drawn[0].names is None else singly(moment.lower)
    sums = [passes.divergence(moment, one.of(lower), moment.operands) for one in drawn]
    total = sums[0] if len(sums) == 1 else torch.stack(sums).mean()
    return total / moment.divergence.normaliser


def hidden_acts(passes: Passes, moment: Moment, masks: dict[str, SiteMask]) -> Tensor:
    """Squared error of what modules read under masks []; token ids cannot differ and are left out."""
    inputs = passes.inputs(moment, masks, moment.operands)
    read = [name for name, x in moment.inputs.items() if x.is_floating_point()]
    squares = torch.stack([(inputs[name] - moment.inputs[name]).square().sum() for name in read])
    return squares.sum() / sum(moment.inputs[name].numel() for name in read)
