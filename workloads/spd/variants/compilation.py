"""What torch.compile is applied to, by scope.

Modules are compiled in place: their class, their names and their state keys stay. Passes are compiled as
functions whose masks, parameters and constants are arguments; the host's bookkeeping stays outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Clock, LevelValue, Parity
from perfsweep.workloads.spd.variants.part import WRAPPED, Part, TensorExponent
from perfsweep.workloads.spd.variants.patching import WrappedModules
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.spd.maths.masked_passes import Masking, Moment
    from perfsweep.workloads.spd.maths.sites import Operands, Stacks

COMPILED_PART = {"losses": 1e-5, "gradients": 1e-4}
COMPILED_PASS = {"losses": 1e-4, "importance_mean": 1e-4, "importance_worst": 1e-4}
_HOOKS_STAY = {"patching": ("wrapper", "persistent_hooks")}
# A compiled pass has its shapes, products and divergence built in.
_STATIC = {"grad_checkpointing": ("per_block",), "routed_rows": ("gathered",)}
SCOPES: dict[LevelValue, dict[str, Any]] = {
    "target": {"requires": _HOOKS_STAY, "bounds": {"losses": 1e-5}},
    "breaks": {"requires": _HOOKS_STAY, "bounds": {"losses": 1e-5}},
    "ci_fns": {"bounds": COMPILED_PART},
    "losses": {"bounds": {"losses": 1e-5}},
    "masked_pass": {**WRAPPED, "bounds": COMPILED_PASS, "conflicts": _STATIC},
    "full": {**WRAPPED, "bounds": COMPILED_PASS, "conflicts": _STATIC},
}
COMPILE = shared.compile(
    *("ci_fns", "target", "losses", "breaks", "masked_pass", "full"),
    every={"parity": Parity.TOLERANCE},
    each=SCOPES,
    source="2",
)
MOST_FORMS = 128


def compiled(function: Callable[..., Any], fullgraph: bool = True) -> Callable[..., Any]:
    """`function` as compiled code for fixed shapes."""
    import torch

    # Passes differ in what they replace, and a layerwise training has one for each module: more than torch
    # expects of one function. Past its limit code would silently stay eager.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MOST_FORMS)
    return torch.compile(function, fullgraph=fullgraph, dynamic=False)


class CompiledFunctions(Part):
    """Importance functions, each by itself."""

    def build(self) -> None:
        """In place."""
        super().build()
        for group in self.decomposition.importance.children():
            for function in group.children():
                function.compile(dynamic=False)


class CompiledTarget(Part):
    """The target's own pass."""

    def build(self) -> None:
        """Once its execution order is known."""
        super().build()
        self.cached = compiled(self.cached, fullgraph=False)


class CompiledLosses(TensorExponent):
    """The terms without passes."""

    def build(self) -> None:
        """The functions themselves."""
        super().build()
        self.faithfulness_of, self.minimality_of = (
            compiled(function) for function in (self.faithfulness_of, self.minimality_of)
        )


class CompiledBetweenBreaks(Part):
    """What the compiler makes of a masked pass as it is."""

    def build(self) -> None:
        """With breaks of the graph."""
        super().build()
        self.masked = compiled(self.masked, fullgraph=False)


class CompiledPasses(WrappedModules):
    """Masked pass and divergence as one graph: masks made inside, all that varies a tensor argument."""

    def build(self) -> None:
        """Nothing is compiled before its first call."""
        from perfsweep.workloads.spd.maths.pass_functions import Traced

        super().build()
        self.traced = Traced(self.target, self.slot, self.where)
        self.built: dict[Any, Callable[..., Any]] = {}

    def divergence(self, moment: Moment, masking: Masking, operands: Mapping[str, Operands]) -> Tensor:
        """Sum over positions of the divergence of the masked output []."""
        from perfsweep.workloads.spd.maths.pass_functions import (
            PassForm,
            constants_of,
            flat_operands,
            pass_function,
        )

        form = PassForm.of(masking.lower, masking)
        measure, constants = constants_of(moment.divergence)
        deltas = any(pair.delta is not None for pair in operands.values())
        key = (form, measure, tuple(operands), deltas)
        if key not in self.built:
            self.built[key] = compiled(pass_function(self.traced, form, measure, tuple(operands)))
        self.note(masking, masking.names or tuple(operands))
        tensors = [list(masking.lower.values()), *form.take(masking)]
        return self.built[key](moment.batch, moment.between, tensors, flat_operands(operands), constants)

    def note(self, masking: Masking, names: Sequence[str]) -> None:
        """Count a pass and check what makes its masks: it lies between importances, sources and 1."""
        self.counts["masked_passes"] += 1
        self.counts["masked_modules"] += len(names)
        for stacks in (masking.lower, masking.sources or {}):
            for tensor in stacks.values():
                self.check(tensor)


class CompiledEverything(CompiledPasses, CompiledLosses):
    """All reconstruction terms of a microbatch as one graph; deltas, target and importances as others.

    Draws and searches come first: they are no part of the loss's graph. A search needs importances, so these
    are a graph of their own.
    """

    def build(self) -> None:
        """Functions of tensors."""

        def importances(inputs: dict[str, Tensor], noise: Stacks | None) -> tuple[list[Tensor], list[Tensor]]:
            lower, upper = self.decomposition.importances(inputs, noise)
            return list(lower.values()), list(upper.values())

        super().build()
        self.cached = compiled(self.cached)
        self.compiled_importances = compiled(importances)
        self.compiled_deltas = compiled(lambda w, v, u: [each - (v[i] @ u[i]).T for i, each in enumerate(w)])

    def importances(self, inputs: Mapping[str, Tensor], noise: Stacks | None) -> tuple[Stacks, Stacks]:
        """Activations, importance functions and both sigmoids as one graph."""
        lower, upper = self.compiled_importances(dict(inputs), noise)
        groups = self.decomposition.groups
        return dict(zip(groups, lower, strict=True)), dict(zip(groups, upper, strict=True))

    def deltas(self, operands: Mapping[str, Operands]) -> dict[str, Tensor]:
        """D of all sites as one graph."""
        import torch

        from perfsweep.workloads.spd.maths.pass_functions import flat_operands

        v, u, _ = flat_operands(operands)
        weights = [self.weight(site).to(v[0]) for site in self.sites]
        with torch.autocast(self.device.type, enabled=False):
            return dict(zip(operands, self.compiled_deltas(weights, v, u), strict=True))

    def terms(
        self, moment: Moment, deltas: Mapping[str, Tensor] | None, p: float | Tensor, clock: Clock
    ) -> dict[str, Tensor]:
        """Searches, then every term []."""
        passes = [one for one in self.recipe.losses if one.kind not in ("faithfulness", "minimality")]
        with clock.phase("search"), self.autocast:
            drawn = {spec.kind: self.prepare(moment, spec) for spec in passes}
        with clock.phase("loss_passes"), self.autocast:
            found = self.together(moment, drawn, p)
        if deltas is not None and any(spec.kind == "faithfulness" for spec in self.recipe.losses):
            with clock.phase("loss_faithfulness"):
                found["faithfulness"] = self.faithfulness(deltas)
        return found

    def together(
        self, moment: Moment, drawn: Mapping[str, Sequence[Masking]], p: float | Tensor
    ) -> dict[str, Tensor]:
        """Every reconstruction term and the minimality [] of prepared passes."""
        from perfsweep.workloads.spd.maths.pass_functions import (
            PassForm,
            constants_of,
            flat_operands,
            terms_function,
        )

        measure, constants = constants_of(moment.divergence)
        forms = {
            kind: tuple(PassForm.of(moment.lower, one) for one in passes) for kind, passes in drawn.items()
        }
        key = (tuple(moment.lower), tuple(forms.items()), measure)
        if key not in self.built:
            kinds = {spec.kind: spec for spec in self.recipe.losses}
            beta = self.recipe.beta if "minimality" in kinds else None
            terms = {kinds[kind]: parts for kind, parts in forms.items()}
            made = terms_function(
                self.traced, self.names, tuple(moment.lower), terms, measure, tuple(moment.operands), beta
            )
            self.built[key] = compiled(made)
        for passes in drawn.values():
            for one in passes:
                self.note(one.of(moment.lower), one.names or self.names)
        tensors = {
            kind: [form.take(one) for form, one in zip(forms[kind], passes, strict=True)]
            for kind, passes in drawn.items()
        }
        importances = [list(moment.lower.values()), list(moment.upper.values())]
        where = (moment.batch, moment.inputs, moment.between)
        return self.built[key](*where, importances, tensors, flat_operands(moment.operands), constants, p)


VARIANTS = (
    Variant(
        COMPILE,
        {
            "ci_fns": CompiledFunctions,
            "target": CompiledTarget,
            "losses": CompiledLosses,
            "breaks": CompiledBetweenBreaks,
            "masked_pass": CompiledPasses,
            "full": CompiledEverything,
        },
    ),
)
