"""A toy's iteration without a graph: by formulas as operations on tensors, or in C++."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Clock, Level, Levels, Toggle
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.variants.compilation import SCOPES
from perfsweep.workloads.spd.variants.part import Part
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from perfsweep.workloads.spd.maths.importance import StackedImportanceFn
    from perfsweep.workloads.spd.maths.sites import Names, Stacks

WRITTEN_TERMS = ("minimality", "stochastic", "stochastic_layerwise")


def _not_written_down(config: SpdConfig, levels: Levels) -> str | None:
    """Reason why there are no formulas for a training, or None."""
    recipe = config.recipe
    counts = {count for _, count in recipe.modules}
    if [name for name, _ in recipe.modules] != ["linear1", "linear2"] or len(counts) > 1 or not recipe.toy:
        return (
            "formulas are those of a toy (workload.preset) whose two modules have equally many subcomponents"
        )
    if tuple(loss.kind for loss in recipe.losses) != WRITTEN_TERMS:
        return (
            f"formulas are those of the terms {', '.join(WRITTEN_TERMS)}, and workload.losses asks for others"
        )
    if recipe.importance != "mlp" or len(recipe.hidden) != 1 or config.sigmoid != "leaky_hard":
        return (
            "formulas are those of workload.importance=mlp with one hidden layer and"
            " workload.sigmoid=leaky_hard"
        )
    if not config.delta_component:
        return "formulas have a delta component, and workload.delta_component=false"
    if config.sampling != "continuous":
        return f"formulas are those of workload.sampling=continuous, not of {config.sampling}"
    if config.microbatches > 1 and levels["micro_batch"] == "loop":
        return f"formulas take a batch in one piece, not in workload.microbatches={config.microbatches}"
    return None


# Formulas make masks that cannot leave [0, 1], and have no graph that other levels could change.
_FORMULAS: dict[str, Any] = {
    "requires": {"delta": ("folded",), "stack_modules": ("stacked",), "mask_checks": ("off",)},
    "conflicts": {"compile": tuple(SCOPES), "amp": ("bf16", "fp16"), "grad_checkpointing": ("per_block",)},
    "refused": _not_written_down,
    "witness": "ops",
}

GRADIENTS = Toggle(
    "gradients",
    (
        Level("autograd"),
        Level("formulas", **_FORMULAS),
        Level("native", unsupported=shared.needs_host_compiler, **_FORMULAS),
    ),
    "gradients of a toy from the graph of an iteration, from formulas, or from formulas in C++",
)


class Written(Part):
    """A training of a toy without a graph: what its forms share."""

    group: Names
    function: StackedImportanceFn

    def build(self) -> None:
        """Take hold of the target's and the decomposition's tensors."""
        super().build()
        decomposition = self.decomposition
        down, up = (self.target.get_submodule(site.name) for site in self.sites)
        self.weights: Any = (down.weight, up.weight)
        self.bias: Any = up.bias
        self.group = decomposition.groups[0]
        first, second = (decomposition.operands()[name] for name in self.group)
        self.pairs = first, second
        self.function = decomposition.importance.stacks[0]  # type: ignore[assignment, union-attr, index]
        factors = {spec.kind: spec.coeff for spec in self.recipe.losses}
        alone = factors["stochastic_layerwise"] / len(self.group)
        self.factor_of_minimality = factors["minimality"]
        # Of the squared errors of both modules replaced, the second alone, the first alone.
        self.factors = factors["stochastic"], alone, alone

    def gradients(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """Set every gradient; the terms [] of the objective, and importances for masks."""
        import torch

        with torch.no_grad():
            return self.written(batch, clock)

    @abstractmethod
    def written(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """The same, where no graph is made."""

    def drawn(self, lead: torch.Size) -> tuple[list[Tensor], list[Tensor]]:
        """Sources s [K, B, C] and mu [K, B] of each draw, in the order in which any other path draws them."""
        self.draws.begin()
        drawn = [self.draws.stochastic(lead, routed=False) for _ in range(2)]
        self.counts["masked_passes"] += 3
        self.counts["masked_modules"] += 4
        deltas = [(one.deltas or {})[self.group] for one in drawn]
        return [one.components[self.group] for one in drawn], deltas


class Native(Written):
    """Terms and gradients in C++."""

    def build(self) -> None:
        """Build the kernel."""
        from perfsweep.workloads.spd.kernels.native import ToyKernel

        super().build()
        factors = (*self.factors, self.factor_of_minimality)
        self.kernel = ToyKernel(self.weights, self.bias, self.pairs, self.function, factors)

    def written(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """By one call."""
        with clock.phase("draws"):
            sources, deltas = self.drawn(batch.shape[:1])
        with clock.phase("gradients"):
            found, lower = self.kernel(batch, sources, deltas, float(self.exponent()), self.recipe.beta)
            for parameter, gradient in zip(self.kernel.parameters, self.kernel.gradients, strict=True):
                parameter.grad = gradient
        *terms, self.total = found.unbind(0)
        return dict(zip(WRITTEN_TERMS, terms, strict=True)), {self.group: lower}


class Formulas(Written):
    """Terms and gradients by operations on tensors."""

    def build(self) -> None:
        """Prepare the formulas."""
        from perfsweep.workloads.spd.maths.formulas import ImportanceFormulas, PassFormulas

        super().build()
        self.passes = PassFormulas(self.weights, self.bias, self.pairs)
        self.importance = ImportanceFormulas(self.function)
        self.scale = self.bias.new_tensor(self.factors).view(3, 1, 1)

    def written(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """By operations."""
        import torch

        from perfsweep.workloads.spd.maths.masked_products import lower_leaky_gradient, upper_leaky

        passes, p = self.passes, self.exponent()
        with clock.phase("target"):
            activations = passes.target(batch)
        with clock.phase("importance"):
            g = self.importance.forward(activations)
            lower, upper = g.clamp(0.0, 1.0), upper_leaky(g)
        with clock.phase("loss_passes"):
            sources, deltas = (torch.stack(drawn) for drawn in self.drawn(batch.shape[:1]))
            deltas = deltas.unsqueeze(-1)
            apart = passes.forward(torch.lerp(lower, torch.ones_like(lower), sources).sub_(deltas), deltas)
            both, second, first = (apart.square().sum((1, 2)) / apart[0].numel()).unbind(0)
            terms = {
                "minimality": self.minimality_of(upper, p, self.recipe.beta, True),
                "stochastic": both,
                "stochastic_layerwise": (first + second) / len(self.group),
            }
        with clock.phase("backward"):
            towards, of_first, found = passes.backward(apart * (2 * self.scale / batch.numel()))
            masks = (towards * (1 - sources)).sum(0)
            towards_g = lower_leaky_gradient(masks, g) + self.of_minimality(g, upper, p)
            self.descend(towards_g, of_first, found)
        self.total = self.weighted(terms)
        return terms, {self.group: lower}

    def of_minimality(self, g: Tensor, upper: Tensor, p: float | Tensor) -> Tensor:
        """Gradient of the weighted minimality towards g [K, B, C]."""
        import torch

        from perfsweep.workloads.spd.maths.losses import TINY
        from perfsweep.workloads.spd.maths.masked_products import LEAK

        beta, rows = self.recipe.beta, g.shape[1]
        # The mean times 1 + beta log2(1 + S), S the sum of the same powers: the product rule over both.
        powers = p * (upper + TINY).pow(p - 1)
        if beta:
            sums = (upper + TINY).pow(p).sum(1, keepdim=True)
            powers = powers * (1 + beta * (torch.log2(1 + sums) + sums / ((1 + sums) * math.log(2))))
        # The slope of `upper_leaky`.
        slope = torch.where(g > 1, LEAK, (g >= 0).to(g.dtype))
        return powers * slope * (self.factor_of_minimality / rows)

    def descend(self, importances: Tensor, first: Tensor, found: tuple[Tensor, Tensor, Tensor]) -> None:
        """From the gradient towards g to those of all parameters."""
        towards, of_functions = self.importance.backward(importances)
        towards[0] += first
        of_first, of_second = self.passes.of_activations(towards)
        for parameter, gradient in zip(self.importance.parameters, of_functions, strict=True):
            parameter.grad = gradient
        one, other = self.pairs
        one.U.grad, other.U.grad = found[0], found[1]
        one.V.grad, other.V.grad = of_first, of_second.add_(found[2])


VARIANTS = (Variant(GRADIENTS, {"formulas": Formulas, "native": Native}),)
