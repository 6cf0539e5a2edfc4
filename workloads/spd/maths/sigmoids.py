"""How a pre-sigmoid importance becomes a number between 0 and 1, for masks (lower) and for the minimality
loss (upper)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LEAK = 0.01
BETA = 10.0

Sigmoid = Callable[[Tensor], Tensor]


class _LowerLeaky(torch.autograd.Function):
    """clamp(g, 0, 1) whose gradient leaks below 0 where a step would raise g: a dead component can come
    back."""

    @staticmethod
    def forward(ctx: Any, g: Tensor) -> Tensor:
        ctx.save_for_backward(g)
        return g.clamp(0.0, 1.0)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> Tensor:
        (g,) = ctx.saved_tensors
        return lower_leaky_gradient(incoming[0], g)


def lower_leaky_gradient(incoming: Tensor, g: Tensor) -> Tensor:
    """What `lower_leaky` hands on of a gradient, at g."""
    return torch.where(g <= 0, LEAK * incoming.clamp(max=0.0), torch.where(g <= 1, incoming, 0.0))


class _Clamped(torch.autograd.Function):
    """Values between 0 and 1, the gradient as if they were not clamped."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clamp(0.0, 1.0)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> Tensor:
        return incoming[0]


def lower_leaky(g: Tensor) -> Tensor:
    """For masks."""
    return _LowerLeaky.apply(g)  # type: ignore[return-value]


def upper_leaky(g: Tensor) -> Tensor:
    """For the minimality loss: leaks above 1, so that a saturated importance can come down."""
    return torch.where(g > 1, 1 + LEAK * (g - 1), g.clamp(min=0.0))


def hard(g: Tensor) -> Tensor:
    """clamp(g, 0, 1)"""
    return g.clamp(0.0, 1.0)


def leaky_hard(g: Tensor) -> Tensor:
    """The clamp with a slope of 0.01 on either side."""
    return torch.where(g < 0, LEAK * g, torch.where(g > 1, 1 + LEAK * (g - 1), g))


def swish_hard(g: Tensor) -> Tensor:
    """A smooth clamp: the difference of two swishes, one unit apart."""
    return g * torch.sigmoid(BETA * g) - (g - 1) * torch.sigmoid(BETA * (g - 1))


def _masked(form: Sigmoid) -> Sigmoid:
    """Masks must lie in [0, 1], and these forms overshoot a little."""

    def clamped(g: Tensor) -> Tensor:
        return _Clamped.apply(form(g))  # type: ignore[return-value]

    return clamped


FORMS: dict[str, tuple[Sigmoid, Sigmoid]] = {
    "leaky": (lower_leaky, upper_leaky),
    "normal": (torch.sigmoid, torch.sigmoid),
    "hard": (hard, hard),
    "leaky_hard": (_masked(leaky_hard), leaky_hard),
    "swish_hard": (_masked(swish_hard), swish_hard),
}
"""Lower and upper form by name."""
