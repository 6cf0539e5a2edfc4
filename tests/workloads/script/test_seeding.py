"""Whether a script seeds what it draws from, and that its runs differ by the trial's seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import pytest
import torch

from perfsweep.workloads.script import seeding
from perfsweep.workloads.script.seeding import Seeding
from perfsweep.workloads.script.sight import UNSEEDED


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
        (lambda: (random.seed(1), np.random.seed(1), random.random(), np.random.rand()), ()),
        (lambda: (torch.randn(2), torch.manual_seed(0), torch.randn(2)), ("torch",)),
        (lambda: np.random.default_rng(0).random(), ()),
    ],
)
def test_generators_that_are_drawn_from_without_a_seed_are_named(
    script: Callable[[], object], found: tuple[str, ...]
) -> None:
    assert missing(script) == found


SEED = (torch.manual_seed, random.seed, np.random.seed)


def drawn(seed: int, moved_by: int) -> list[float]:
    with ExitStack() as undo:
        seeding.move(moved_by, undo)
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed=seed)
        own = np.random.default_rng(seed).random()
        return [float(torch.rand(())), random.random(), float(np.random.random()), own]


def test_every_generator_that_the_script_seeds_is_moved_by_the_trials_seed() -> None:
    assert drawn(3, moved_by=2) == drawn(5, moved_by=0)
    assert drawn(2**32 - 1, moved_by=3) == drawn(2, moved_by=0)  # numpy takes no larger seed
    assert all(one != other for one, other in zip(drawn(3, 1), drawn(3, 0), strict=True))
    assert (torch.manual_seed, random.seed, np.random.seed) == SEED


@pytest.mark.parametrize(
    ("line", "draws"),
    [
        ("rng = np.random.default_rng()", True),
        ("name = os.urandom(8)", True),
        ("s = int(time.time())", True),
        ("random.seed(None)", True),
        ("t = secrets.token_hex(8)", True),
        ("rng = np.random.default_rng(0)", False),
        ("start = time.perf_counter()", False),
        ("my_default_rng_()", False),
    ],
)
def test_a_line_that_may_draw_without_a_seed_is_told_from_others(line: str, draws: bool) -> None:
    assert bool(UNSEEDED.search(line)) == draws
