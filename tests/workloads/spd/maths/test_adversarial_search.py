"""Adversarial sources: where they lie, what they reach, and what bounds them."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from perfsweep.workloads.spd.maths.adversarial_sources import split
from perfsweep.workloads.spd.maths.losses import SquaredError
from perfsweep.workloads.spd.maths.masked_passes import Masking, Moment
from perfsweep.workloads.spd.maths.sites import Operands, find_sites
from perfsweep.workloads.spd.maths.target import Target
from perfsweep.workloads.spd.presets import LossSpec
from perfsweep.workloads.spd.variants.adversary import EveryFourth, KeptSources, LargerSteps, ScheduledSteps

COUNT, ROWS = 3, 6


class One(Target):
    """A single linear module: its squared error is convex in the sources."""

    stages = ("linear",)

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2, bias=False)
        self.double().requires_grad_(False)


@pytest.fixture
def problem(arm_of):
    """A moment of a single module with random importances, its arm, and where a search begins."""

    def make(seed: int, folds: bool, search: str):
        generator = torch.Generator().manual_seed(seed)
        target = One()
        target.linear.weight.copy_(torch.randn(2, 3, generator=generator, dtype=torch.float64))
        x = torch.randn(ROWS, 3, generator=generator, dtype=torch.float64)
        V = torch.randn(3, COUNT, generator=generator, dtype=torch.float64, requires_grad=True)
        U = torch.randn(COUNT, 2, generator=generator, dtype=torch.float64, requires_grad=True)
        lower = torch.rand(ROWS, COUNT, generator=generator, dtype=torch.float64, requires_grad=True)
        divergence = SquaredError(target(x))
        weight = target.linear.weight.clone()
        config = {"modules": ["linear"], "components": COUNT, "batch_size": 2}
        levels = {"patching": "wrapper", "delta": "folded"} if folds else {}
        sites = find_sites(target, [("linear", COUNT)])
        arm = arm_of(target, sites, np.ones((ROWS, 3), np.float32), config, pgd_inner=search, **levels)
        pair = Operands(V, U, None if folds else weight - (V @ U).T)
        moment = Moment(x, {"linear": x}, [], divergence, {("linear",): lower}, {}, {"linear": pair})
        start = {("linear",): torch.rand(1, COUNT + 1, generator=generator, dtype=torch.float64)}
        return moment, arm, start

    return make


def loss_at(moment: Moment, arm, sources) -> float:
    components, deltas = split(sources)
    return float(arm.divergence(moment, Masking(moment.lower, components, deltas), moment.operands).detach())


def corners(moment: Moment, arm) -> list[float]:
    """Losses with every source at 0 or 1."""
    return [
        loss_at(moment, arm, {("linear",): torch.tensor([corner], dtype=torch.float64)})
        for corner in itertools.product((0.0, 1.0), repeat=COUNT + 1)
    ]


@pytest.mark.parametrize(
    ("search", "folds"),
    [
        ("full", False),
        ("detached", True),
        pytest.param("full", True, marks=pytest.mark.workloads),
        pytest.param("detached", False, marks=pytest.mark.workloads),
    ],
)
def test_no_search_exceeds_the_worst_corner_and_all_stay_in_the_box(problem, search, folds) -> None:
    for seed in range(6):
        moment, arm, start = problem(seed, folds, search)
        found = arm.search(moment, Masking(moment.lower), start, 0.05, 30)
        assert found["linear",].min() >= 0 and found["linear",].max() <= 1
        reached = loss_at(moment, arm, found)
        assert reached <= max(corners(moment, arm)) * (1 + 1e-9)
        # Small steps rise in at least 95 of 100 cases.
        assert reached >= loss_at(moment, arm, start) - 1e-12


def test_many_small_steps_reach_the_worst_corner_of_most_problems(problem) -> None:
    reached = 0
    for seed in range(12):
        moment, arm, start = problem(seed, True, "detached")
        found = arm.search(moment, Masking(moment.lower), start, 0.05, 60)
        reached += loss_at(moment, arm, found) >= 0.999 * max(corners(moment, arm))
    assert reached >= 6  # a convex function has several corners that are locally worst


@pytest.mark.parametrize(
    ("steps", "size", "fewer", "larger"),
    [(20, 0.1, 5, 0.4), (4, 0.5, 1, 1.0), (6, 0.5, 1, 1.0), (1, 0.3, 1, 0.3), (0, 0.3, 0, 0.0)],
    ids=["as far", "to the other end", "at most to the other end", "one stays one", "none stays none"],
)
def test_a_quarter_of_the_steps_reach_as_far(steps, size, fewer, larger) -> None:
    spec = LossSpec("pgd", 1.0, steps, size)
    assert LargerSteps().search_steps(spec) == fewer
    assert LargerSteps().step_size(spec) == pytest.approx(larger)


def steps_of(kind: type[Any], spec: LossSpec, iterations: int, count: int) -> list[int]:
    """Steps of the first iterations of a training of some length."""
    part, found = kind(), []
    part.recipe = SimpleNamespace(steps=iterations)
    for part.step in range(count):
        found.append(part.search_steps(spec))
    return found


@pytest.mark.parametrize(
    ("iterations", "expected"), [(8, [1, 1, 2, 3, 4, 4, 4, 4]), (1, [1, 4, 4]), (2, [1, 4, 4, 4])]
)
def test_steps_grow_from_one_to_all_at_half_of_training(iterations: int, expected: list[int]) -> None:
    spec = LossSpec("pgd", 1.0, 4, 0.1)
    assert steps_of(ScheduledSteps, spec, iterations, len(expected)) == expected
    assert set(steps_of(ScheduledSteps, LossSpec("pgd", 1.0, 0, 0.1), iterations, 4)) == {0}


def test_every_fourth_iteration_searches() -> None:
    assert steps_of(EveryFourth, LossSpec("pgd", 1.0, 4, 0.1), 9, 9) == [4, 0, 0, 0, 4, 0, 0, 0, 4]


class Nothing:
    """What keeps no sources."""

    def build(self) -> None:
        self.ends: list[Any] = []

    def sources(self) -> dict[str, Any]:
        return {}

    def load_sources(self, sources: Any) -> None:
        """Nothing."""


class Kept(KeptSources, Nothing):  # type: ignore[misc]
    """The part alone."""

    def __init__(self) -> None:
        self.build()

    def begun(self, term: str, drawn: Any) -> Any:
        return self.searched(None, LossSpec("pgd", 1.0, 4, 0.1), term, None, drawn)  # type: ignore[arg-type]

    def ended(self) -> None:
        for end in self.ends:
            end()
        self.ends.clear()


def test_persistent_sources_ascend_by_adam_and_go_on_from_a_state() -> None:
    first, second = Kept(), Kept()
    drawn = {("a",): torch.tensor([0.5, 0.5, 0.99])}
    moved = first.begun("pgd", drawn)
    (moved["a",] * torch.tensor([1.0, -3.0, 2.0])).sum().backward()
    first.ended()
    after = first.begun("pgd", {("a",): torch.zeros(3)})["a",]
    assert after.tolist() == pytest.approx([0.6, 0.4, 1.0])  # a first step of Adam is as long as its rate
    first.ends.clear()
    second.load_sources(first.sources())
    for one in (first, second):
        again = one.begun("pgd", drawn)
        (again["a",] * torch.tensor([-1.0, -3.0, 0.0])).sum().backward()
        one.ended()
    optimizer = torch.optim.Adam(
        [leaf := torch.nn.Parameter(torch.tensor([0.5, 0.5, 0.99]))], lr=0.1, betas=(0.9, 0.99), maximize=True
    )
    for gradient in ([1.0, -3.0, 2.0], [-1.0, -3.0, 0.0]):
        leaf.grad = torch.tensor(gradient)
        optimizer.step()
        leaf.data.clamp_(0, 1)
    for one in (first, second):
        assert one.begun("pgd", drawn)["a",].tolist() == pytest.approx(leaf.tolist(), rel=1e-5)
    assert first.begun("other", drawn)["a",].tolist() == pytest.approx([0.5, 0.5, 0.99])
