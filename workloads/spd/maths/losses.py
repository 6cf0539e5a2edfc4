"""How far an output is from the target's: Kullback-Leibler over a vocabulary, squared error for toys.

A divergence is made once for each microbatch from the target's output and then asked for many predictions. It
returns *sums* over positions (KL) or elements (MSE); `normaliser` is what divides them. A vanishing gradient
of a mean over many positions would lose signs in 16 bit; a sum keeps them.

Dimensions: T positions, v vocabulary, d width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


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
