"""Masked passes as functions of tensors, for compiled code: masks, parameters and constants are arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.spd.maths.losses import (
    CachedKl,
    Divergence,
    OfConstants,
    RecomputedKl,
    SquaredError,
    minimality,
)
from perfsweep.workloads.spd.maths.masked_passes import Masking, Moment, evaluate, make_masks
from perfsweep.workloads.spd.maths.masked_products import Call, SiteMask, Slot
from perfsweep.workloads.spd.maths.sites import Names, Operands, Stacks
from perfsweep.workloads.spd.maths.target import Target
from perfsweep.workloads.spd.presets import LossSpec

Where = Callable[[Moment, tuple[str, ...]], Mapping[str, Any]]


def constants_of(divergence: Divergence) -> tuple[str, tuple[Tensor, ...]]:
    """How a divergence is measured, and the tensors that takes."""
    if isinstance(divergence, CachedKl):
        return "cached", divergence.constants()
    if isinstance(divergence, RecomputedKl):
        return "recomputed", (divergence.logits,)
    assert isinstance(divergence, SquaredError)
    return "squared", (divergence.target,)


class Traced:
    """Passes of wrapped modules without counts and checks.

    Parameters
    ----------
    where : begins a pass that replaces some modules
    """

    def __init__(self, target: Target, slot: Slot, where: Where) -> None:
        self._target, self._slot, self._where = target, slot, where

    def divergence(self, moment: Moment, masking: Masking, operands: Mapping[str, Operands]) -> Tensor:
        """Sum over positions of the divergence of the masked output []."""
        return moment.divergence.sum(self.output(moment, make_masks(masking), operands))

    def output(
        self, moment: Moment, masks: Mapping[str, SiteMask], operands: Mapping[str, Operands]
    ) -> Tensor:
        """The masked output."""
        return self._run(moment, masks, operands, None, self._where(moment, tuple(masks)))

    def inputs(
        self, moment: Moment, masks: Mapping[str, SiteMask], operands: Mapping[str, Operands]
    ) -> dict[str, Tensor]:
        """What each module reads under masks."""
        found: dict[str, Tensor] = {}
        self._run(moment, masks, operands, found, {})
        return found

    def _run(
        self,
        moment: Moment,
        masks: Mapping[str, SiteMask],
        operands: Mapping[str, Operands],
        inputs: dict[str, Tensor] | None,
        where: Mapping[str, Any],
    ) -> Tensor:
        self._slot.call = Call(masks, operands, inputs)
        output = self._target(moment.batch, **where)
        self._slot.call = None
        return output


@dataclass(frozen=True)
class PassForm:
    """The structure of one pass: which of its tensors there are, under which names.

    Attributes
    ----------
    stacks : keys of importances; `sources`, `deltas` say whether these take part under the same keys
    routes : names of routed modules, empty for none
    names : modules that are replaced, None for all
    """

    stacks: tuple[Names, ...]
    sources: tuple[Names, ...]
    deltas: tuple[Names, ...]
    routes: tuple[str, ...]
    names: tuple[str, ...] | None

    @staticmethod
    def of(lower: Stacks, drawn: Masking) -> PassForm:
        """The structure of a pass."""
        return PassForm(
            tuple(lower),
            tuple(drawn.sources or ()),
            tuple(drawn.deltas or ()),
            tuple(drawn.routes or ()),
            drawn.names,
        )

    def take(self, drawn: Masking) -> list[list[Tensor]]:
        """The tensors of a pass, without importances."""
        return [list((part or {}).values()) for part in (drawn.sources, drawn.deltas, drawn.routes)]

    def give(self, tensors: Sequence[Sequence[Tensor]]) -> Masking:
        """The pass of some tensors."""
        sources, deltas, routes = tensors
        return Masking(
            {},
            dict(zip(self.sources, sources, strict=True)) if self.sources else None,
            dict(zip(self.deltas, deltas, strict=True)) if self.deltas else None,
            dict(zip(self.routes, routes, strict=True)) if self.routes else None,
            names=self.names,
        )


def flat_operands(operands: Mapping[str, Operands]) -> list[list[Tensor]]:
    """V, U and D of all modules."""
    pairs = operands.values()
    return [
        [pair.V for pair in pairs],
        [pair.U for pair in pairs],
        [pair.delta for pair in pairs if pair.delta is not None],
    ]


def named_operands(names: Sequence[str], tensors: Sequence[Sequence[Tensor]]) -> dict[str, Operands]:
    """Operands of some tensors."""
    v, u, d = tensors
    return {name: Operands(v[i], u[i], d[i] if d else None) for i, name in enumerate(names)}


def pass_function(
    traced: Traced, form: PassForm, measure: str, pairs: tuple[str, ...]
) -> Callable[..., Tensor]:
    """The divergence of a pass as a function of tensors."""

    def run(
        batch: Tensor,
        between: list[Tensor],
        tensors: list[list[Tensor]],
        operands: list[list[Tensor]],
        constants: tuple[Tensor, ...],
    ) -> Tensor:
        moment = Moment(batch, {}, between, OfConstants(measure, constants, 1))
        lower = dict(zip(form.stacks, tensors[0], strict=True))
        return traced.divergence(moment, form.give(tensors[1:]).of(lower), named_operands(pairs, operands))

    return run


def terms_function(
    traced: Traced,
    names: Sequence[str],
    stacks: tuple[Names, ...],
    forms: Mapping[LossSpec, Sequence[PassForm]],
    measure: str,
    pairs: tuple[str, ...],
    beta: float | None,
) -> Callable[..., dict[str, Tensor]]:
    """Every term of prepared passes, and with a `beta` the minimality, as a function of tensors."""

    def run(
        batch: Tensor,
        inputs: dict[str, Tensor],
        between: list[Tensor],
        importances: list[list[Tensor]],
        tensors: dict[str, list[list[list[Tensor]]]],
        operands: list[list[Tensor]],
        constants: tuple[Tensor, ...],
        p: Tensor,
    ) -> dict[str, Tensor]:
        moment = Moment(
            batch,
            inputs,
            between,
            OfConstants(measure, constants, 1),
            operands=named_operands(pairs, operands),
        )
        moment.divergence.normaliser = constants[0].numel() if measure == "squared" else moment.lead.numel()
        moment.lower = dict(zip(stacks, importances[0], strict=True))
        found = {}
        for spec, passes in forms.items():
            drawn = [form.give(part) for form, part in zip(passes, tensors[spec.kind], strict=True)]
            found[spec.kind] = evaluate(traced, names, moment, spec, drawn)
        if beta is not None:
            parts = [
                minimality(u, p, beta, len(group) > 1)
                for group, u in zip(stacks, importances[1], strict=True)
            ]
            found["minimality"] = torch.stack(parts).sum()
        return found

    return run
