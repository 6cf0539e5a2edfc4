"""Whether a script seeds the generators that it draws from."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import pytest
import torch

from perfsweep.workloads.script.seeding import Seeding


def missing(script: Callable[[], object]) -> tuple[str, ...]:
    seeding = Seeding()
    with ExitStack() as undo:
        seeding.watch(undo)
        script()
        seeding.end()
    return seeding.missing


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (lambda: torch.randn(2), ("torch",)),
        (lambda: (torch.manual_seed(0), torch.randn(2)), ()),
        (lambda: (random.random(), np.random.rand()), ("numpy", "random")),
        (lambda: (torch.manual_seed(0), random.random()), ("random",)),
        (lambda: (random.seed(1), np.random.seed(1), random.random(), np.random.rand()), ()),
        (lambda: (torch.randn(2), torch.manual_seed(0), torch.randn(2)), ("torch",)),
        (lambda: torch.ones(2), ()),
        (lambda: np.random.default_rng(0).random(), ()),
    ],
)
def test_generators_that_are_drawn_from_without_a_seed_are_named(
    script: Callable[[], object], found: tuple[str, ...]
) -> None:
    assert missing(script) == found


def test_the_functions_that_seed_are_as_they_were_afterwards() -> None:
    before = torch.manual_seed, torch.random.manual_seed, random.seed, np.random.seed
    missing(lambda: None)
    assert (torch.manual_seed, torch.random.manual_seed, random.seed, np.random.seed) == before
