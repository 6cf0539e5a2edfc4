"""Terms of the recipe and what changes over a training, by hand-worked values."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsweep.workloads.spd.maths import losses
from perfsweep.workloads.spd.presets import PRESETS
from perfsweep.workloads.spd.reference import Reference

RECIPE = replace(
    PRESETS["lm_2l"],
    steps=101,
    lr=0.8,
    final_lr=0.25,
    lr_warmup=0.0,
    pnorm=2.0,
    final_p=0.5,
    schedule="linear",
)


@pytest.mark.parametrize("modules", [1, 2, 3])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_modules_in_one_stack_add_up_to_the_same_minimality(modules: int, beta: float) -> None:
    generator = torch.Generator().manual_seed(modules)
    upper = torch.rand(modules, 4, 3, 5, generator=generator, dtype=torch.float64)
    arm: Any = SimpleNamespace(minimality_of=losses.minimality, recipe=SimpleNamespace(beta=beta))
    names = tuple("abc"[:modules])
    stacked = {names: upper if modules > 1 else upper[0]}
    alone = {(name,): one for name, one in zip(names, upper, strict=True)}
    found, right = (Reference.minimality(arm, stacks, 2.0) for stacks in (stacked, alone))
    assert torch.allclose(found, right, rtol=1e-12)
    sums = (upper + losses.TINY).square().sum((1, 2))
    assert torch.allclose(right, (sums / 12 * (1 + beta * torch.log2(1 + sums))).sum(), rtol=1e-12)


def test_minimality_of_zeros_has_a_finite_slope() -> None:
    upper = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    losses.minimality(upper, 0.5, 0.0, stacked=False).backward()
    assert upper.grad is not None and torch.isfinite(upper.grad).all()


@pytest.mark.parametrize(
    ("span", "step", "expected"),
    [
        ((0.0, 1.0), 50, 1.25),
        ((0.2, 0.6), 30, 1.625),
        ((0.4, 0.4), 39, 2.0),  # at once
        ((0.4, 0.4), 40, 0.5),
    ],
)
def test_the_exponent_goes_on_a_line_between_two_shares_of_training(
    span: tuple[float, float], step: int, expected: float
) -> None:
    recipe = replace(RECIPE, steps=100, anneal_from=span[0], anneal_to=span[1])
    assert losses.annealed_p(recipe, step) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("schedule", "step", "share"),
    [
        ("linear", 50, 0.625),
        ("linear", 300, 0.25),
        ("cosine", 25, 0.25 + 0.75 * 0.5 * (1 + math.cos(math.pi / 4))),
        ("constant", 100, 1.0),
    ],
)
def test_the_rate_falls_to_its_last_share_on_the_last_step(schedule: str, step: int, share: float) -> None:
    assert losses.learning_rate(replace(RECIPE, schedule=schedule), step) == pytest.approx(0.8 * share)


@pytest.mark.parametrize(("step", "expected"), [(0, 0.0), (5, 0.4), (10, 0.8), (55, 0.8 * 0.625)])
def test_the_rate_rises_on_a_line_and_falls_from_there(step: int, expected: float) -> None:
    assert losses.learning_rate(replace(RECIPE, lr_warmup=0.1), step) == pytest.approx(expected)
