"""Runs of a script that seeds itself differ by the trial's seed."""

from __future__ import annotations

import random
from contextlib import ExitStack

import numpy as np
import pytest
import torch

from perfsweep.workloads.script import own_seeds

SEED = (torch.manual_seed, random.seed, np.random.seed)


def drawn(seed: int, moved_by: int) -> list[float]:
    with ExitStack() as undo:
        own_seeds.move(moved_by, undo)
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed=seed)
        own = np.random.default_rng(seed).random()
        return [float(torch.rand(())), random.random(), float(np.random.random()), own]


def test_every_generator_that_the_script_seeds_is_moved_by_the_trials_seed() -> None:
    assert drawn(3, moved_by=2) == drawn(5, moved_by=0)
    assert all(one != other for one, other in zip(drawn(3, 1), drawn(3, 0), strict=True))
    assert (torch.manual_seed, random.seed, np.random.seed) == SEED


@pytest.mark.parametrize("seed", [None, "text"])
def test_what_is_no_number_seeds_as_ever(seed: str | None) -> None:
    with ExitStack() as undo:
        own_seeds.move(1, undo)
        random.seed(seed)
        first = random.random()
    random.seed(seed)
    assert (random.random() == first) is (seed is not None)
