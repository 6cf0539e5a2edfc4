"""Trainings of a toy whose gradients are written down: by operations on tensors (`formulas`), or in C++."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from perfsweep.workloads.api import Clock
from perfsweep.workloads.spd.kernels.native import ToyKernel
from perfsweep.workloads.spd.maths.formulas import ImportanceFormulas, PassFormulas
from perfsweep.workloads.spd.maths.importance import StackedImportanceFn
from perfsweep.workloads.spd.maths.losses import TINY, annealed_p, minimality
from perfsweep.workloads.spd.maths.masked_products import LEAK, lower_leaky_gradient, upper_leaky
from perfsweep.workloads.spd.maths.sites import Names, Stacks
from perfsweep.workloads.spd.toggles import WRITTEN_TERMS
from perfsweep.workloads.spd.training.loop import Parts, Training


class WrittenTraining(Training):
    """A training of a toy without a graph: what its forms share.

    Parameters
    ----------
    weights : W1 [d, f] and W2 [f, d] of the frozen target
    bias : behind the second module [f]
    """

    def __init__(self, parts: Parts, weights: tuple[Tensor, Tensor], bias: Tensor) -> None:
        super().__init__(parts)
        decomposition = parts.decomposition
        self._names: Names = decomposition.groups[0]
        first, second = (decomposition.operands()[name] for name in self._names)
        self._weights, self._bias, self._pairs = weights, bias, (first, second)
        self._function: StackedImportanceFn = decomposition.importance.stacks[0]  # type: ignore[assignment, union-attr, index]
        factors = {spec.kind: spec.coeff for spec in parts.recipe.losses}
        alone = factors["stochastic_layerwise"] / len(self._names)
        self._minimality = factors["minimality"]
        # Of the squared errors of both modules replaced, the second alone, the first alone.
        self._coefficients = factors["stochastic"], alone, alone

    def _draw(self, lead: torch.Size) -> tuple[list[Tensor], list[Tensor]]:
        """Sources s [K, B, C] and mu [K, B] of each draw, in the order in which any other path draws them."""
        reconstruction = self.parts.objective.reconstruction
        reconstruction.draws.begin()
        drawn = [reconstruction.draws.stochastic(lead, routed=False) for _ in range(2)]
        self.parts.counts["masked_passes"] += 3
        self.parts.counts["masked_modules"] += 4
        deltas = [(one.deltas or {})[self._names] for one in drawn]
        return [one.components[self._names] for one in drawn], deltas

    def _exponent(self) -> float | Tensor:
        return (
            annealed_p(self.parts.recipe, self.step) if self.parts.p_tensor is None else self.parts.p_tensor
        )


class NativeTraining(WrittenTraining):
    """Terms and gradients in C++."""

    def __init__(self, parts: Parts, weights: tuple[Tensor, Tensor], bias: Tensor) -> None:
        super().__init__(parts, weights, bias)
        self._kernel = ToyKernel(
            weights, bias, self._pairs, self._function, (*self._coefficients, self._minimality)
        )

    @torch.no_grad()
    def gradients(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """Set every gradient; the terms [] of the objective, and importances for masks."""
        with clock.phase("draws"):
            sources, deltas = self._draw(batch.shape[:1])
        with clock.phase("gradients"):
            found, lower = self._kernel(
                batch, sources, deltas, float(self._exponent()), self.parts.recipe.beta
            )
            for parameter, gradient in zip(self._kernel.parameters, self._kernel.gradients, strict=True):
                parameter.grad = gradient
        *terms, self.total = found.unbind(0)
        return dict(zip(WRITTEN_TERMS, terms, strict=True)), {self._names: lower}


class FormulaTraining(WrittenTraining):
    """Terms and gradients by operations on tensors."""

    def __init__(self, parts: Parts, weights: tuple[Tensor, Tensor], bias: Tensor) -> None:
        super().__init__(parts, weights, bias)
        self._passes = PassFormulas(weights, bias, self._pairs)
        self._importance = ImportanceFormulas(self._function)
        self._scale = bias.new_tensor(self._coefficients).view(3, 1, 1)

    @torch.no_grad()
    def gradients(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """Set every gradient; the terms [] of the objective, and importances for masks."""
        parts, passes, p = self.parts, self._passes, self._exponent()
        with clock.phase("target"):
            activations = passes.target(batch)
        with clock.phase("importance"):
            g = self._importance.forward(activations)
            lower, upper = g.clamp(0.0, 1.0), upper_leaky(g)
        with clock.phase("loss_passes"):
            sources, deltas = (torch.stack(drawn) for drawn in self._draw(batch.shape[:1]))
            deltas = deltas.unsqueeze(-1)
            apart = passes.forward(torch.lerp(lower, torch.ones_like(lower), sources).sub_(deltas), deltas)
            terms = self._terms(apart, upper, p)
        with clock.phase("backward"):
            towards, first, found = passes.backward(apart * (2 * self._scale / batch.numel()))
            masks = (towards * (1 - sources)).sum(0)
            self._descend(lower_leaky_gradient(masks, g) + self._of_minimality(g, upper, p), first, found)
        self.total = parts.objective.total(terms)
        return terms, {self._names: lower}

    def _terms(self, apart: Tensor, upper: Tensor, p: float | Tensor) -> dict[str, Tensor]:
        both, second, first = (apart.square().sum((1, 2)) / apart[0].numel()).unbind(0)
        return {
            "minimality": minimality(upper, p, self.parts.recipe.beta, stacked=True),
            "stochastic": both,
            "stochastic_layerwise": (first + second) / len(self._names),
        }

    def _of_minimality(self, g: Tensor, upper: Tensor, p: float | Tensor) -> Tensor:
        """Gradient of the weighted minimality towards g [K, B, C]."""
        beta, rows = self.parts.recipe.beta, g.shape[1]
        # The mean times 1 + beta log2(1 + S), S the sum of the same powers: the product rule over both.
        powers = p * (upper + TINY).pow(p - 1)
        if beta:
            sums = (upper + TINY).pow(p).sum(1, keepdim=True)
            powers = powers * (1 + beta * (torch.log2(1 + sums) + sums / ((1 + sums) * math.log(2))))
        # The slope of `upper_leaky`.
        slope = torch.where(g > 1, LEAK, (g >= 0).to(g.dtype))
        return powers * slope * (self._minimality / rows)

    def _descend(self, importances: Tensor, first: Tensor, found: tuple[Tensor, Tensor, Tensor]) -> None:
        """From the gradient towards g to those of all parameters."""
        towards, of_functions = self._importance.backward(importances)
        towards[0] += first
        of_first, of_second = self._passes.of_activations(towards)
        for parameter, gradient in zip(self._importance.parameters, of_functions, strict=True):
            parameter.grad = gradient
        one, other = self._pairs
        one.U.grad, other.U.grad = found[0], found[1]
        one.V.grad, other.V.grad = of_first, of_second.add_(found[2])
