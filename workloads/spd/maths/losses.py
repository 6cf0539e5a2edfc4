"""Terms of the objective: faithfulness, minimality, and how far an output is from the target's.

The last is Kullback-Leibler over a vocabulary, squared error for toys. A divergence is made once for each
microbatch from the target's output and then asked for many predictions. It returns *sums* over positions (KL)
or elements (MSE); `normaliser` is what divides them. A vanishing gradient of a mean over many positions would
lose signs in 16 bit; a sum keeps them.

Dimensions: T positions, v vocabulary, d width.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from perfsweep.workloads.spd.presets import Recipe


class Divergence(ABC):
    """Distance from one target output.

    Attributes
    ----------
    normaliser : positions for KL, elements for MSE
    """

    normaliser: int

    @abstractmethod
    def sum(self, prediction: Tensor) -> Tensor:
        """The divergence summed over positions or elements []."""

    def mean(self, prediction: Tensor) -> Tensor:
        """The divergence for each position or element []."""
        return self.sum(prediction) / self.normaliser


class SquaredError(Divergence):
    """For outputs that are vectors."""

    def __init__(self, target: Tensor) -> None:
        self.target = target
        self.normaliser = target.numel()

    def sum(self, prediction: Tensor) -> Tensor:
        """Squared differences, summed."""
        return self.distance(prediction, self.target)

    @staticmethod
    def distance(prediction: Tensor, target: Tensor) -> Tensor:
        """Squared differences, summed []."""
        return (prediction - target).square().sum()


class RecomputedKl(Divergence):
    """Both softmaxes again for each prediction."""

    def __init__(self, logits: Tensor, counts: Counter[str]) -> None:
        self.logits, self._counts = logits, counts
        self.normaliser = logits.shape[:-1].numel()

    def sum(self, prediction: Tensor) -> Tensor:
        """KL(target || prediction), summed over positions."""
        self._counts["softmax_rows"] += self.normaliser
        return self.distance(prediction, self.logits)

    @staticmethod
    def distance(prediction: Tensor, logits: Tensor) -> Tensor:
        """KL(softmax(logits) || softmax(prediction)), summed over positions []."""
        return F.kl_div(
            _log_softmax(prediction), _log_softmax(logits), reduction="none", log_target=True
        ).sum()


class CachedKl(Divergence):
    """The target's p and sum(p log p) once; then add ``sum(logsumexp(logits)) - sum(p * logits)``.

    The three terms cancel to about 1e-6 nats a position in float32; the gradient, softmax - p, has nothing to
    cancel.
    """

    def __init__(self, logits: Tensor, counts: Counter[str]) -> None:
        logs = _log_softmax(logits)
        self._p = logs.exp()
        self._entropy = (self._p * logs).sum()
        self._counts = counts
        self.normaliser = logits.shape[:-1].numel()
        counts["softmax_rows"] += self.normaliser

    def constants(self) -> tuple[Tensor, Tensor]:
        """p [.., v] and sum(p log p) [], for compiled passes."""
        return self._p, self._entropy

    def sum(self, prediction: Tensor) -> Tensor:
        """KL(target || prediction), summed over positions."""
        return _KlOfLogits.apply(prediction, self._p, self._entropy)  # type: ignore[return-value]


def kl_sum(logits: Tensor, p: Tensor, entropy: Tensor) -> Tensor:
    """The cached form in plain operations, for compilers."""
    # Sixteen bits would leave nothing of a difference of three large sums.
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return entropy - (p * wide).sum() + torch.logsumexp(wide, -1).sum()


class OfConstants(Divergence):
    """A divergence whose constants are arguments of compiled code, by the formula of the eager form.

    Parameters
    ----------
    measure : cached or recomputed for logits, squared for vectors
    """

    def __init__(self, measure: str, constants: Sequence[Tensor], normaliser: int) -> None:
        self._measure, self._constants, self.normaliser = measure, tuple(constants), normaliser

    def sum(self, prediction: Tensor) -> Tensor:
        """Of a prediction []."""
        if self._measure == "cached":
            return kl_sum(prediction, *self._constants)
        distance = RecomputedKl.distance if self._measure == "recomputed" else SquaredError.distance
        return distance(prediction, *self._constants)


class _KlOfLogits(torch.autograd.Function):
    """The cached form with a written gradient: one exponential, no chain of vocabulary-sized tensors."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, p: Tensor, entropy: Tensor) -> Tensor:
        wide = logits if logits.dtype == torch.float64 else logits.float()
        scale = torch.logsumexp(wide, -1, keepdim=True)
        ctx.save_for_backward(logits, p, scale)
        return entropy - (p * wide).sum() + scale.sum()

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor | None, ...]:
        logits, p, scale = ctx.saved_tensors
        # The gradient of logsumexp(logits) - <p, logits> is softmax(logits) - p.
        grad = (logits - scale).exp_().sub_(p).mul_(incoming[0])
        return grad.to(logits.dtype), None, None


def _log_softmax(logits: Tensor) -> Tensor:
    """In float32 at least."""
    return F.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), -1)


TINY = 1e-12


def faithfulness(deltas: Mapping[str, Tensor]) -> Tensor:
    """sum ||D||^2 / sum of all entries [], in the deltas' own precision.

    The Gram form ||W||^2 - 2 <W, VU> + ||VU||^2 would need no D, but cancels near 1e-5 of the weights' size.
    """
    squares = [delta.square().sum() for delta in deltas.values()]
    return torch.stack(squares).sum() / sum(delta.numel() for delta in deltas.values())


def minimality(upper: Tensor, p: float | Tensor, beta: float, stacked: bool) -> Tensor:
    """sum over modules and subcomponents of mean * (1 + beta * log2(1 + S)); S sums u^p over positions [].

    Parameters
    ----------
    upper : u [..., C] of one module, or [K, ..., C]
    p : exponent; a tensor where compiled code must not be built again for every value
    """
    # TINY: with p below one the slope at zero would be infinite.
    powers = (upper + TINY).pow(p)
    positions = powers.shape[1:-1] if stacked else powers.shape[:-1]
    sums = powers.flatten(1, -2).sum(1) if stacked else powers.flatten(0, -2).sum(0)
    means = sums / math.prod(positions)
    return means.sum() if beta == 0 else (means * (1 + beta * torch.log2(1 + sums))).sum()


def annealed_p(recipe: Recipe, step: int) -> float:
    """The exponent at a step: linear from `pnorm` to `final_p` between two shares of training."""
    share = step / max(recipe.steps, 1)
    span = recipe.anneal_to - recipe.anneal_from
    done = (
        min(max((share - recipe.anneal_from) / span, 0.0), 1.0)
        if span > 0
        else float(share >= recipe.anneal_from)
    )
    return recipe.pnorm + (recipe.final_p - recipe.pnorm) * done


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, then constant, linear or cosine from 1 to `final_lr` of the peak."""
    return scheduled(step, recipe.steps, recipe.lr, recipe.schedule, recipe.final_lr, recipe.lr_warmup)


def scheduled(step: int, steps: int, peak: float, form: str, last: float, share: float) -> float:
    """The rate at a step of `steps`: up to `peak` over a share of them, then by its form to `last` of it."""
    warmup = int(share * steps)
    if step < warmup:
        return peak * step / warmup
    if form == "constant":
        return peak
    done = min((step - warmup) / max(steps - warmup - 1, 1), 1.0)
    shape = 1 - done if form == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return peak * (last + (1 - last) * shape)
