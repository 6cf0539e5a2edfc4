"""Distances from a target's output: every form against the formula, and what each notes of its work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from perfsweep.workloads.spd.maths.losses import CachedKl, Divergence, OfConstants, RecomputedKl, SquaredError
from perfsweep.workloads.spd.maths.pass_functions import constants_of

HEAD = torch.randn(3, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def hidden(seed: int) -> Tensor:
    """States before the head [2, 5, 3]."""
    return torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_definition(target: Tensor, prediction: Tensor) -> Tensor:
    p, q = target.softmax(-1), prediction.softmax(-1)
    return (p * (p.log() - q.log())).sum()


FORMS: dict[str, Callable[[Tensor, Counter[str]], Divergence]] = {
    "recomputed": lambda states, counts: RecomputedKl(states @ HEAD, counts),
    "cached": lambda states, counts: CachedKl(states @ HEAD, counts),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_sum_the_mean_and_the_gradient_of_the_definition(form: str) -> None:
    divergence = FORMS[form](hidden(1), Counter())
    states = hidden(2).requires_grad_()
    right = by_definition(hidden(1) @ HEAD, states @ HEAD)
    (expected,) = torch.autograd.grad(3 * right, states)
    prediction = states @ HEAD
    found = divergence.sum(prediction)
    (gradient,) = torch.autograd.grad(3 * found, states)
    assert found.item() == pytest.approx(right.item())
    assert torch.allclose(gradient, expected)
    assert divergence.mean(prediction).item() == pytest.approx(right.item() / 10)
    assert divergence.normaliser == 10
    again = OfConstants(*constants_of(divergence), 4)
    assert again.mean(prediction).item() == pytest.approx(right.item() / 4)


def test_squares_are_summed_and_divided_by_elements() -> None:
    divergence = SquaredError(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    prediction = torch.tensor([[1.0, 0.0], [0.0, 4.0]])
    assert divergence.sum(prediction).item() == 4 + 9
    assert divergence.mean(prediction).item() == 13 / 4
    assert OfConstants(*constants_of(divergence), 2).mean(prediction).item() == 13 / 2
