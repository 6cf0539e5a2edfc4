"""How far an output is from the target's: Kullback-Leibler over a vocabulary, squared error for toys.

A divergence is made once for each microbatch from the target's output and then asked for many predictions. It
returns *sums* over positions (KL) or elements (MSE); `normaliser` is what divides them. A vanishing gradient
of a mean over many positions would lose signs in 16 bit; a sum keeps them.

Dimensions: T positions, v vocabulary, d width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class Divergence(ABC):
    """Distance from one target output.

    Attributes
    ----------
    normaliser : positions for KL, elements for MSE
    reads_hidden : whether predictions are asked for before the head
    """

    normaliser: int
    reads_hidden = False

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
        note_vocabulary(self._counts, prediction, tensors=4)
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
        note_vocabulary(counts, logits, tensors=2)

    def constants(self) -> tuple[Tensor, Tensor]:
        """p [.., v] and sum(p log p) [], for compiled passes."""
        return self._p, self._entropy

    def sum(self, prediction: Tensor) -> Tensor:
        """KL(target || prediction), summed over positions."""
        note_vocabulary(self._counts, prediction, tensors=2)
        return _KlOfLogits.apply(prediction, self._p, self._entropy)  # type: ignore[return-value]


def kl_sum(logits: Tensor, p: Tensor, entropy: Tensor) -> Tensor:
    """The cached form in plain operations, for compilers."""
    # Sixteen bits would leave nothing of a difference of three large sums.
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return entropy - (p * wide).sum() + torch.logsumexp(wide, -1).sum()


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


class ChunkedKl(Divergence):
    """KL from the hidden state before the head, some rows at a time: never all positions by the vocabulary.

    The gradient towards the hidden state is made in the forward pass, chunk by chunk, while the chunk's
    logits are there.
    """

    reads_hidden = True

    def __init__(
        self, hidden: Tensor, head: Callable[[Tensor], Tensor], rows: int, counts: Counter[str], cached: bool
    ) -> None:
        self._hidden, self._head, self._rows, self._counts = hidden.flatten(0, -2), head, rows, counts
        self.normaliser = len(self._hidden)
        self._p: list[Tensor] | None = None
        if cached:
            self._p = [self._target(chunk) for chunk in self._hidden.split(rows)]

    def _target(self, hidden: Tensor) -> Tensor:
        self._counts["softmax_rows"] += len(hidden)
        return _log_softmax(self._head(hidden))

    def sum(self, prediction: Tensor) -> Tensor:
        """KL(target || prediction), summed over positions; `prediction` is a hidden state [..., d]."""
        return _ChunkedSum.apply(prediction, self)  # type: ignore[return-value]

    def chunk(self, number: int, hidden: Tensor, wants_gradient: bool) -> tuple[Tensor, Tensor | None]:
        """Sum over one chunk [] and its gradient towards the hidden state [rows, d]."""
        start = number * self._rows
        logs = self._p[number] if self._p else self._target(self._hidden[start : start + self._rows])
        with torch.set_grad_enabled(wants_gradient):
            # A graph of its own for each chunk: its logits are freed before the next one's are made.
            leaf = hidden.detach().requires_grad_(wants_gradient)
            logits = self._head(leaf)
            note_vocabulary(self._counts, logits, tensors=4)
            value = F.kl_div(_log_softmax(logits), logs, reduction="none", log_target=True).sum()
        gradient = torch.autograd.grad(value, leaf)[0] if wants_gradient else None
        return value.detach(), gradient

    def value_and_gradient(self, prediction: Tensor, wants_gradient: bool) -> tuple[Tensor, Tensor | None]:
        """Of all chunks: the sum [] and the gradient in the shape of `prediction`."""
        flat = prediction.flatten(0, -2)
        found = [self.chunk(i, part, wants_gradient) for i, part in enumerate(flat.split(self._rows))]
        total = torch.stack([value for value, _ in found]).sum()
        if not wants_gradient:
            return total, None
        return total, torch.cat([gradient for _, gradient in found if gradient is not None]).view_as(
            prediction
        )


class _ChunkedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, prediction: Tensor, divergence: ChunkedKl) -> Tensor:
        value, gradient = divergence.value_and_gradient(prediction, ctx.needs_input_grad[0])
        if gradient is not None:
            ctx.save_for_backward(gradient)
        return value

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor | None, ...]:
        # The forward pass made the gradient while the logits were there; the chain rule only scales it.
        return ctx.saved_tensors[0] * incoming[0], None


def note_vocabulary(counts: Counter[str], logits: Tensor, tensors: int) -> None:
    """Remember the most bytes of vocabulary-sized tensors that one divergence has alive at once."""
    counts["vocabulary_bytes"] = max(
        counts["vocabulary_bytes"], tensors * logits.numel() * logits.element_size()
    )


def _log_softmax(logits: Tensor) -> Tensor:
    """In float32 at least."""
    return F.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), -1)
