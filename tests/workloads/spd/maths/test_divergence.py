"""Distances from a target's output: every form against the formula, and what each notes of its work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from perfsweep.workloads.spd.maths.divergence import (
    CachedKl,
    Divergence,
    OfConstants,
    RecomputedKl,
    SquaredError,
    kl_sum,
)
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


@pytest.mark.parametrize(("form", "rows"), [("recomputed", 20), ("cached", 10)])
def test_softmaxes_of_the_target_are_counted(form: str, rows: int) -> None:
    counts: Counter[str] = Counter()
    divergence = FORMS[form](hidden(1), counts)
    for seed in (2, 3):
        divergence.sum(hidden(seed) @ HEAD)
    assert counts == {"softmax_rows": rows}


def test_compiled_passes_compute_the_cached_form() -> None:
    divergence = CachedKl(hidden(1) @ HEAD, Counter())
    found = kl_sum(hidden(2) @ HEAD, *divergence.constants())
    assert found.item() == pytest.approx(divergence.sum(hidden(2) @ HEAD).item())


@pytest.mark.parametrize("form", ["recomputed", "cached"])
def test_sixteen_bits_are_added_up_in_single_precision(form: str) -> None:
    divergence = FORMS[form](hidden(1), Counter())
    coarse = (hidden(2) @ HEAD).bfloat16().requires_grad_()
    found = divergence.sum(coarse)
    found.backward()
    right = by_definition(hidden(1) @ HEAD, coarse.detach().double())
    assert found.item() == pytest.approx(right.item(), rel=1e-4)
    assert coarse.grad is not None and coarse.grad.dtype == torch.bfloat16


def test_squares_are_summed_and_divided_by_elements() -> None:
    divergence = SquaredError(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    prediction = torch.tensor([[1.0, 0.0], [0.0, 4.0]])
    assert divergence.sum(prediction).item() == 4 + 9
    assert divergence.mean(prediction).item() == 13 / 4


@pytest.mark.parametrize(
    "form",
    [
        lambda target: CachedKl(target, Counter()),
        lambda target: RecomputedKl(target, Counter()),
        lambda target: SquaredError(target),
    ],
    ids=["cached", "recomputed", "squared"],
)
def test_compiled_code_that_is_given_the_constants_measures_the_same(
    form: Callable[[Tensor], Divergence],
) -> None:
    target, prediction = hidden(1), hidden(2)
    eager = form(target)
    given = OfConstants(*constants_of(eager), eager.normaliser)
    assert given.sum(prediction).item() == pytest.approx(eager.sum(prediction).item(), rel=1e-12)
    assert given.normaliser == eager.normaliser
