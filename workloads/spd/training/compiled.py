"""What torch.compile is applied to, by scope.

Modules are compiled in place: their class, their names and their state keys stay. Passes are compiled as
functions whose masks, parameters and constants are arguments; the host's bookkeeping stays outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.spd.maths.components import Deltas, Operands
from perfsweep.workloads.spd.maths.decomposition import Decomposition
from perfsweep.workloads.spd.maths.divergence import CachedKl, Divergence, RecomputedKl, SquaredError, kl_sum
from perfsweep.workloads.spd.maths.losses import minimality
from perfsweep.workloads.spd.maths.masked_passes import Masking, Moment, Passes
from perfsweep.workloads.spd.maths.masked_products import Call, SiteMask
from perfsweep.workloads.spd.maths.patching import Wrappers
from perfsweep.workloads.spd.maths.reconstruction import Drawn, evaluate
from perfsweep.workloads.spd.maths.sites import Names, Site, Stacks
from perfsweep.workloads.spd.maths.target import Target
from perfsweep.workloads.spd.presets import LossSpec

PASSES = frozenset({"masked_pass", "full"})
IMPORTANCE = frozenset({"ci_fns"})
LOSSES = frozenset({"losses", "full"})
TARGET = frozenset({"target", "full"})
VARIANTS = 128


def compiled(function: Callable[..., Any], fullgraph: bool = True) -> Callable[..., Any]:
    """`function` as compiled code for fixed shapes."""
    # Passes differ in what they replace, and a layerwise training has one for each module: more than torch
    # expects of one function. Past its limit code would silently stay eager.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    return torch.compile(function, fullgraph=fullgraph, dynamic=False)


class Given(Divergence):
    """A divergence whose constants are arguments of compiled code."""

    def __init__(self, measure: str, constants: Sequence[Tensor], normaliser: int) -> None:
        self._measure, self._constants, self.normaliser = measure, tuple(constants), normaliser

    def sum(self, prediction: Tensor) -> Tensor:
        """By the formula of the eager form."""
        if self._measure == "cached":
            return kl_sum(prediction, *self._constants)
        distance = RecomputedKl.distance if self._measure == "recomputed" else SquaredError.distance
        return distance(prediction, *self._constants)


def constants_of(divergence: Divergence) -> tuple[str, tuple[Tensor, ...]]:
    """How a divergence is measured, and the tensors that takes."""
    if isinstance(divergence, CachedKl):
        return "cached", divergence.constants()
    if isinstance(divergence, RecomputedKl):
        return "recomputed", (divergence.logits,)
    assert isinstance(divergence, SquaredError)
    return "squared", (divergence.target,)


class TracedPasses(Passes):
    """Passes without counts and checks, for the inside of compiled code."""

    def __init__(self, wrappers: Wrappers, reuse: bool) -> None:
        super().__init__(wrappers, reuse)
        self._target, self._slot = wrappers.target, wrappers.slot

    def output(
        self, moment: Moment, masks: Mapping[str, SiteMask], operands: Mapping[str, Operands]
    ) -> Tensor:
        """The masked output."""
        where = self.where(moment, tuple(masks))
        self._slot.call = Call(masks, operands)
        output = self._target(moment.batch, first=where.first, hidden=where.hidden)
        self._slot.call = None
        return output

    def inputs(
        self, moment: Moment, masks: Mapping[str, SiteMask], operands: Mapping[str, Operands]
    ) -> dict[str, Tensor]:
        """What each module reads under masks."""
        found: dict[str, Tensor] = {}
        self._slot.call = Call(masks, operands, found)
        self._target(moment.batch)
        self._slot.call = None
        return found


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
    def of(lower: Stacks, drawn: Drawn | Masking) -> PassForm:
        """The structure of a pass."""
        return PassForm(
            tuple(lower),
            tuple(drawn.sources or ()),
            tuple(drawn.deltas or ()),
            tuple(drawn.routes or ()),
            drawn.names,
        )

    def take(self, drawn: Drawn | Masking) -> list[list[Tensor]]:
        """The tensors of a pass, without importances."""
        return [list((part or {}).values()) for part in (drawn.sources, drawn.deltas, drawn.routes)]

    def give(self, tensors: Sequence[Sequence[Tensor]]) -> Drawn:
        """The pass of some tensors."""
        sources, deltas, routes = tensors
        return Drawn(
            dict(zip(self.sources, sources, strict=True)) if self.sources else None,
            dict(zip(self.deltas, deltas, strict=True)) if self.deltas else None,
            dict(zip(self.routes, routes, strict=True)) if self.routes else None,
            names=self.names,
        )


class CompiledPasses(Passes):
    """Masked pass and divergence as one graph: masks made inside, all that varies a tensor argument."""

    def __init__(self, patching: Wrappers, reuse: bool) -> None:
        super().__init__(patching, reuse)
        self.traced = TracedPasses(patching, reuse)
        self._built: dict[Any, Callable[..., Tensor]] = {}

    def divergence(self, moment: Moment, masking: Masking, operands: Mapping[str, Operands]) -> Tensor:
        """Sum over positions of the divergence of the masked output []."""
        form = PassForm.of(masking.lower, masking)
        measure, constants = constants_of(moment.divergence)
        deltas = any(pair.delta is not None for pair in operands.values())
        key = (form, measure, tuple(operands), deltas)
        if key not in self._built:
            self._built[key] = compiled(self._pass(form, measure, tuple(operands)))
        self.note(masking, masking.names or tuple(operands))
        tensors = [list(masking.lower.values()), *form.take(masking)]
        return self._built[key](moment.batch, moment.between, tensors, flat_operands(operands), constants)

    def note(self, masking: Masking, names: Sequence[str]) -> None:
        """Count a pass and check what makes its masks: it lies between importances, sources and 1."""
        self.patching.counts["masked_passes"] += 1
        self.patching.counts["masked_modules"] += len(names)
        for stacks in (masking.lower, masking.sources or {}):
            for tensor in stacks.values():
                self.patching.check(tensor)

    def _pass(self, form: PassForm, measure: str, pairs: tuple[str, ...]) -> Callable[..., Tensor]:
        traced = self.traced

        def run(
            batch: Tensor,
            between: list[Tensor],
            tensors: list[list[Tensor]],
            operands: list[list[Tensor]],
            constants: tuple[Tensor, ...],
        ) -> Tensor:
            moment = Moment(batch, {}, between, Given(measure, constants, 1))
            lower = dict(zip(form.stacks, tensors[0], strict=True))
            return traced.divergence(
                moment, form.give(tensors[1:]).masking(lower), named_operands(pairs, operands)
            )

        return run


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


class CompiledImportances:
    """Activations, importance functions and both sigmoids as one graph."""

    def __init__(self, decomposition: Decomposition) -> None:
        def run(inputs: dict[str, Tensor], noise: Stacks | None) -> tuple[list[Tensor], list[Tensor]]:
            lower, upper = decomposition.importances(inputs, noise)
            return list(lower.values()), list(upper.values())

        self._groups = decomposition.groups
        self._run = compiled(run)

    def __call__(self, inputs: Mapping[str, Tensor], noise: Stacks | None = None) -> tuple[Stacks, Stacks]:
        """Importances for masks and for minimality."""
        lower, upper = self._run(dict(inputs), noise)
        return dict(zip(self._groups, lower, strict=True)), dict(zip(self._groups, upper, strict=True))


class CompiledDeltas(Deltas):
    """D of all sites as one graph."""

    def __init__(self, target: Target, sites: Sequence[Site], counts: Counter[str]) -> None:
        super().__init__(target, sites, counts)
        self._run = compiled(lambda w, v, u: [each - (v[i] @ u[i]).T for i, each in enumerate(w)])

    def all(self, components: Mapping[str, Operands]) -> dict[str, Tensor]:
        """D by name, with gradients towards V and U."""
        v, u, _ = flat_operands(components)
        weights = [self.weight(site).to(v[0]) for site in self._sites]
        with torch.autocast(v[0].device.type, enabled=False):
            return dict(zip(components, self._run(weights, v, u), strict=True))


class CompiledTerms:
    """All reconstruction terms of a microbatch as one graph, with the importances if nothing is searched.

    Draws and searches come first: they are no part of the loss's graph. A search needs importances, so these
    are a graph of their own where there is one.
    """

    def __init__(
        self, losses: Sequence[LossSpec], beta: float, passes: CompiledPasses, names: Sequence[str]
    ) -> None:
        self._losses = [spec for spec in losses if spec.kind not in ("faithfulness", "minimality")]
        self._minimal = any(spec.kind == "minimality" for spec in losses)
        self._passes, self._names, self._beta = passes, tuple(names), beta
        self._built: dict[Any, Callable[..., dict[str, Tensor]]] = {}

    def __call__(
        self, moment: Moment, drawn: Mapping[str, Sequence[Drawn]], p: float | Tensor
    ) -> dict[str, Tensor]:
        """Every reconstruction term and the minimality [] of prepared passes."""
        measure, constants = constants_of(moment.divergence)
        forms = {
            kind: tuple(PassForm.of(moment.lower, one) for one in passes) for kind, passes in drawn.items()
        }
        key = (tuple(moment.lower), tuple(forms.items()), measure)
        if key not in self._built:
            self._built[key] = compiled(
                self._terms(tuple(moment.lower), forms, measure, tuple(moment.operands))
            )
        for passes in drawn.values():
            for one in passes:
                self._passes.note(one.masking(moment.lower), one.names or self._names)
        tensors = {
            kind: [form.take(one) for form, one in zip(forms[kind], passes, strict=True)]
            for kind, passes in drawn.items()
        }
        importances = [list(moment.lower.values()), list(moment.upper.values())]
        where = (moment.batch, moment.inputs, moment.between)
        return self._built[key](*where, importances, tensors, flat_operands(moment.operands), constants, p)

    def _terms(
        self,
        stacks: tuple[Names, ...],
        forms: Mapping[str, Sequence[PassForm]],
        measure: str,
        pairs: tuple[str, ...],
    ) -> Callable[..., dict[str, Tensor]]:
        traced, names, losses = self._passes.traced, self._names, self._losses
        minimal, beta = self._minimal, self._beta

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
                batch, inputs, between, Given(measure, constants, 1), operands=named_operands(pairs, operands)
            )
            moment.divergence.normaliser = (
                constants[0].numel() if measure == "squared" else moment.lead.numel()
            )
            moment.lower = dict(zip(stacks, importances[0], strict=True))
            found = {}
            for spec in losses:
                drawn = [
                    form.give(part) for form, part in zip(forms[spec.kind], tensors[spec.kind], strict=True)
                ]
                found[spec.kind] = evaluate(traced, names, moment, spec, drawn)
            if minimal:
                parts = [
                    minimality(u, p, beta, len(group) > 1)
                    for group, u in zip(stacks, importances[1], strict=True)
                ]
                found["minimality"] = torch.stack(parts).sum()
            return found

        return run
