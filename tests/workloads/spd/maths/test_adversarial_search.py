"""Adversarial sources: where they lie, what they reach, and what bounds them."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
from torch import nn

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.spd.maths.adversarial_search import (
    DetachedSearch,
    EverySteps,
    FixedSteps,
    LargerSteps,
    PersistentSources,
    ScheduledSteps,
    Search,
    Steps,
    ascend,
    split,
)
from perfsweep.workloads.spd.maths.components import Operands
from perfsweep.workloads.spd.maths.divergence import SquaredError
from perfsweep.workloads.spd.maths.masked_passes import Masking, Moment, Passes
from perfsweep.workloads.spd.maths.masked_products import check_nothing, two_step
from perfsweep.workloads.spd.maths.patching import TemporaryHooks, Wrappers
from perfsweep.workloads.spd.maths.sites import find_sites
from perfsweep.workloads.spd.maths.target import Target
from perfsweep.workloads.spd.presets import LossSpec

COUNT, ROWS = 3, 6


class One(Target):
    """A single linear module: its squared error is convex in the sources."""

    stages = ("linear",)

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2, bias=False)
        self.double().requires_grad_(False)


def problem(seed: int, folds: bool):
    """A moment of a single module with random importances, and its passes."""
    generator = torch.Generator().manual_seed(seed)
    target = One()
    target.linear.weight.copy_(torch.randn(2, 3, generator=generator, dtype=torch.float64))
    x = torch.randn(ROWS, 3, generator=generator, dtype=torch.float64)
    V = torch.randn(3, COUNT, generator=generator, dtype=torch.float64, requires_grad=True)
    U = torch.randn(COUNT, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    lower = torch.rand(ROWS, COUNT, generator=generator, dtype=torch.float64, requires_grad=True)
    sites = find_sites(target, [("linear", COUNT)])
    divergence = SquaredError(target(x))
    weight = target.linear.weight.clone()
    common = (target, sites, check_nothing, two_step, Counter())
    patching = Wrappers(*common, folds=True) if folds else TemporaryHooks(*common)
    pair = Operands(V, U, None if folds else weight - (V @ U).T)
    moment = Moment(x, {"linear": x}, [], divergence, {("linear",): lower}, {}, {"linear": pair})
    start = {("linear",): torch.rand(1, COUNT + 1, generator=generator, dtype=torch.float64)}
    return moment, Passes(patching, reuse=False), start


def loss_at(moment: Moment, passes: Passes, sources) -> float:
    components, deltas = split(sources)
    return float(
        passes.divergence(moment, Masking(moment.lower, components, deltas), moment.operands).detach()
    )


@pytest.mark.parametrize(
    ("search", "folds"),
    [
        (Search, False),
        (DetachedSearch, True),
        pytest.param(Search, True, marks=pytest.mark.workloads),
        pytest.param(DetachedSearch, False, marks=pytest.mark.workloads),
    ],
)
def test_no_search_exceeds_the_worst_corner_and_all_stay_in_the_box(search, folds) -> None:
    risen = 0
    for seed in range(12):
        moment, passes, start = problem(seed, folds)
        spec = LossSpec("pgd", 1.0, 30, 0.05)
        corners = [
            loss_at(moment, passes, {("linear",): torch.tensor([corner], dtype=torch.float64)})
            for corner in itertools.product((0.0, 1.0), repeat=COUNT + 1)
        ]
        found = search(passes, Counter())(moment, Masking(moment.lower), start, spec, spec.steps)
        sources = found["linear",]
        assert sources.min() >= 0 and sources.max() <= 1
        reached = loss_at(moment, passes, found)
        assert reached <= max(corners) * (1 + 1e-9)
        risen += reached >= loss_at(moment, passes, start) - 1e-12
    assert risen == 12  # small steps rise in at least 95 of 100 cases


def test_many_small_steps_reach_the_worst_corner_of_most_problems() -> None:
    reached = 0
    for seed in range(12):
        moment, passes, start = problem(seed, folds=True)
        spec = LossSpec("pgd", 1.0, 60, 0.05)
        found = DetachedSearch(passes, Counter())(moment, Masking(moment.lower), start, spec, spec.steps)
        best = max(
            loss_at(moment, passes, {("linear",): torch.tensor([corner], dtype=torch.float64)})
            for corner in itertools.product((0.0, 1.0), repeat=COUNT + 1)
        )
        reached += loss_at(moment, passes, found) >= 0.999 * best
    assert reached >= 6  # a convex function has several corners that are locally worst


def test_detached_and_full_searches_find_the_same_sources() -> None:
    for seed in range(5):
        moment, passes, start = problem(seed, folds=True)
        spec = LossSpec("pgd", 1.0, 10, 0.1)
        full, detached = (
            kind(passes, Counter())(moment, Masking(moment.lower), start, spec, 10)["linear",]
            for kind in (Search, DetachedSearch)
        )
        assert torch.equal(full, detached)


def test_no_steps_leave_the_stochastic_loss_of_a_shared_source(start) -> None:
    few = {"modules": ["layers.*.attn.q"], "components": 8}
    workload = start(config={"losses": "all", "pgd_steps": 0, "dtype": "float64", **few})
    objective = workload.training.parts.objective
    draws = objective.reconstruction.draws
    from perfsweep.workloads.api import NullClock

    deltas = workload.training.parts.deltas.all(objective.decomposition.operands())
    moment = objective.moment(
        workload.builder.first_batch(), objective.decomposition.operands(deltas), NullClock()
    )
    spec = next(spec for spec in workload.config.recipe.losses if spec.kind == "pgd")
    state = draws.generator.get_state()
    found = objective.reconstruction(moment, spec)
    draws.generator.set_state(state)
    components, mus = split(draws.adversarial(moment.lead, spec))
    expected = objective.passes.divergence(moment, Masking(moment.lower, components, mus), moment.operands)
    assert found.item() == pytest.approx(expected.item() / moment.divergence.normaliser, rel=1e-12)


@pytest.mark.parametrize(("init", "value"), [("ones", 1.0), ("zeros", 0.0)])
@pytest.mark.parametrize(("scope", "shape"), [("shared", (1, 1, 41)), ("datapoint", (4, 16, 41))])
def test_sources_start_where_they_are_told(start, init, value, scope, shape) -> None:
    draws = start().training.parts.objective.reconstruction.draws
    drawn = draws.adversarial(torch.Size([4, 16]), LossSpec("pgd", 1.0, 1, 0.1, init, scope))
    assert all(tensor.shape == shape and bool((tensor == value).all()) for tensor in drawn.values())


def test_routes_choose_every_number_of_modules_alike(start) -> None:
    draws = start().training.parts.objective.reconstruction.draws
    routes = torch.stack(list(draws.routes(torch.Size([400, 16])).values()))
    chosen = routes.sum(0).flatten()
    shares = torch.bincount(chosen, minlength=13)[1:].float() / chosen.numel()
    assert chosen.min() >= 1
    assert (shares - 1 / 12).abs().max() < 0.015
    assert (routes.float().mean((1, 2)) - 6.5 / 12).abs().max() < 0.02


def test_stacked_draws_are_the_numbers_of_single_ones(start) -> None:
    one, stacked = (
        start(stack_modules=level).training.parts.objective.reconstruction.draws
        for level in ("loop", "stacked")
    )
    lead = torch.Size([4, 16])
    first, second = one.stochastic(lead, routed=True), stacked.stochastic(lead, routed=True)
    (together,) = second.components.values()
    order = [names[0] for names in first.components]
    (names,) = second.components
    for name in order:
        assert torch.equal(first.components[name,], together[names.index(name)])
        assert torch.equal(first.routes[name], second.routes[name])


@pytest.mark.parametrize(
    ("steps", "size", "fewer", "larger"),
    [(20, 0.1, 5, 0.4), (4, 0.5, 1, 1.0), (6, 0.5, 1, 1.0), (1, 0.3, 1, 0.3), (0, 0.3, 0, 0.0)],
    ids=["as far", "to the other end", "at most to the other end", "one stays one", "none stays none"],
)
def test_a_quarter_of_the_steps_reach_as_far(steps, size, fewer, larger) -> None:
    spec = LossSpec("pgd", 1.0, steps, size)
    assert LargerSteps().of(spec, 0) == fewer
    assert LargerSteps().size(spec) == pytest.approx(larger)


def test_larger_steps_are_what_sources_move_by(start) -> None:
    workload = start(config={"losses": "all", "pgd_steps": 2, "dtype": "float64"}, pgd_steps="larger")
    reconstruction, seen = workload.training.parts.objective.reconstruction, []
    search = reconstruction.search
    reconstruction.search = lambda moment, about, sources, spec, steps: (
        seen.append((steps, spec.step_size)) or search(moment, about, sources, spec, steps)
    )
    workload.step(NullClock())
    assert seen == [(1, 1.0)]  # two steps of 1 would reach no further than one


def test_fixed_steps_are_as_many_as_asked_for() -> None:
    assert FixedSteps(3).of(LossSpec("pgd", 1.0, 7, 0.1), 10) == 3


@pytest.mark.parametrize(
    ("iterations", "expected"), [(8, [1, 1, 2, 3, 4, 4, 4, 4]), (1, [1, 4, 4]), (2, [1, 4, 4, 4])]
)
def test_steps_grow_from_one_to_all_at_half_of_training(iterations: int, expected: list[int]) -> None:
    steps = ScheduledSteps(iterations)
    spec = LossSpec("pgd", 1.0, 4, 0.1)
    assert [steps.of(spec, iteration) for iteration in range(len(expected))] == expected
    assert steps.of(LossSpec("pgd", 1.0, 0, 0.1), iterations) == 0
    assert steps.size(spec) == 0.1


def test_every_fourth_iteration_searches() -> None:
    spec = LossSpec("pgd", 1.0, 4, 0.1)
    assert [EverySteps().of(spec, iteration) for iteration in range(9)] == [4, 0, 0, 0, 4, 0, 0, 0, 4]
    assert [Steps().of(spec, iteration) for iteration in range(3)] == [4, 4, 4]


def test_sources_move_by_the_sign_of_the_gradient_and_stay_in_the_box() -> None:
    sources = {("a",): torch.tensor([0.5, 0.5, 0.5, 0.95, 0.05])}
    gradients = {("a",): torch.tensor([1e-9, -7.0, 0.0, 1.0, -1.0])}
    assert ascend(sources, gradients, 0.1)["a",].tolist() == pytest.approx([0.6, 0.4, 0.5, 1.0, 0.0])


def test_the_last_source_is_that_of_the_delta() -> None:
    components, deltas = split({("a",): torch.tensor([[1.0, 2.0, 3.0]])})
    assert components["a",].tolist() == [[1, 2]]
    assert deltas["a",].tolist() == [3]


def test_persistent_sources_ascend_by_adam_and_go_on_from_a_state() -> None:
    first, second = PersistentSources(), PersistentSources()
    drawn = {("a",): torch.tensor([0.5, 0.5, 0.99])}
    assert first.of(LossSpec("pgd", 1.0, 4, 0.1), 0) == 0
    moved = first.start("pgd", drawn)
    (moved["a",] * torch.tensor([1.0, -3.0, 2.0])).sum().backward()
    first.finish("pgd", moved)
    after = first.start("pgd", {("a",): torch.zeros(3)})["a",]
    assert after.tolist() == pytest.approx([0.6, 0.4, 1.0])  # a first step of Adam is as long as its rate
    second.load(first.state())
    for one in (first, second):
        again = one.start("pgd", drawn)
        (again["a",] * torch.tensor([-1.0, -3.0, 0.0])).sum().backward()
        one.finish("pgd", again)
    optimizer = torch.optim.Adam(
        [leaf := torch.nn.Parameter(torch.tensor([0.5, 0.5, 0.99]))], lr=0.1, betas=(0.9, 0.99), maximize=True
    )
    for gradient in ([1.0, -3.0, 2.0], [-1.0, -3.0, 0.0]):
        leaf.grad = torch.tensor(gradient)
        optimizer.step()
        leaf.data.clamp_(0, 1)
    for one in (first, second):
        assert one.start("pgd", drawn)["a",].tolist() == pytest.approx(leaf.tolist(), rel=1e-5)
    assert first.start("other", drawn)["a",].tolist() == pytest.approx([0.5, 0.5, 0.99])
