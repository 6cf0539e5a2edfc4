"""Terms of the recipe: what is stacked is the sum of what is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from workloads.spd.maths import losses
from workloads.spd.maths.objective import Objective


@pytest.mark.parametrize("modules", [1, 2, 3])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_modules_in_one_stack_add_up_to_the_same_minimality(modules: int, beta: float) -> None:
    generator = torch.Generator().manual_seed(modules)
    upper = torch.rand(modules, 4, 3, 5, generator=generator, dtype=torch.float64)
    objective: Any = SimpleNamespace(
        functions=SimpleNamespace(minimality=losses.minimality), recipe=SimpleNamespace(beta=beta)
    )
    names = tuple("abc"[:modules])
    stacked = {names: upper if modules > 1 else upper[0]}
    alone = {(name,): one for name, one in zip(names, upper, strict=True)}
    found, right = (Objective._minimality(objective, stacks, 2.0) for stacks in (stacked, alone))
    assert torch.allclose(found, right, rtol=1e-12)
    sums = (upper + losses.TINY).square().sum((1, 2))
    assert torch.allclose(right, (sums / 12 * (1 + beta * torch.log2(1 + sums))).sum(), rtol=1e-12)
