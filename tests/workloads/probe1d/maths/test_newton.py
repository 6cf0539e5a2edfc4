"""Steps of Newton's method and what is foreseen of them, by hand-worked values."""

from __future__ import annotations

import math

import pytest
import torch

from perfsweep.workloads.probe1d.maths.derivatives import Derivatives
from perfsweep.workloads.probe1d.maths.newton import (
    STEP_BUDGET,
    Foresight,
    NewtonRules,
    NewtonState,
    newton_decrement,
    solve_damped,
)


def of(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def grads(g0: float, g1: float, h0: float, h1: float, h2: float) -> Derivatives:
    return Derivatives(None, of(g0), of(g1), of(h0), of(h1), of(h2))


def matrix(h0: float, h1: float, h2: float) -> torch.Tensor:
    return torch.tensor([[h0, h1], [h1, h2]], dtype=torch.float64)


@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_a_step_solves_the_system_with_its_diagonal_raised(lam: float) -> None:
    db, dw = solve_damped(grads(1.0, 2.0, 3.0, 0.5, 4.0), of(lam), of(2.0))
    right = torch.linalg.solve(matrix(3 * (1 + lam), 0.5, 4 * (1 + lam)), torch.tensor([1.0, 2.0]).double())
    assert [db.item(), dw.item()] == pytest.approx(right.tolist())


def test_a_step_is_cut_to_six_logits_in_its_direction() -> None:
    db, dw = solve_damped(grads(1.0, 2.0, 0.01, 0.0, 0.01), of(0.0), of(4.0))
    assert math.hypot(db.item(), 4 * dw.item()) == pytest.approx(STEP_BUDGET) == pytest.approx(6.0)
    assert dw.item() == pytest.approx(2 * db.item())


def test_a_singular_system_is_damped_and_a_weak_one_only_below_the_bound() -> None:
    db, dw = solve_damped(grads(1.0, 1.0, 1.0, 1.0, 1.0), of(0.0), of(1.0))
    assert torch.isfinite(db).all() and torch.isfinite(dw).all()
    weak = grads(1.0, 1.0, 1.0, 1.0 - 1e-6, 1.0)
    plain, _ = solve_damped(weak, of(0.0), of(1.0))
    damped, _ = solve_damped(weak, of(0.0), of(1.0), singular=1e-3)
    assert plain.item() == pytest.approx(0.5, rel=1e-3)
    assert damped.item() < 0.01


def test_the_decrement_is_half_the_squared_gradient_in_the_norm_of_the_inverse() -> None:
    g = torch.tensor([1.0, 2.0], dtype=torch.float64)
    right = g @ torch.linalg.solve(matrix(3.0, 0.5, 4.0), g) / 2
    assert newton_decrement(grads(1.0, 2.0, 3.0, 0.5, 4.0)).item() == pytest.approx(right.item())
    assert torch.isfinite(newton_decrement(grads(1.0, 2.0, 1.0, 1.0, 1.0))).all()


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_what_a_step_leaves_of_a_quadratic_is_foreseen_with_room_for_its_curving(scale: float) -> None:
    gradient = grads(1e-5, 2e-5, 3.0, 0.5, 4.0)
    whole = torch.linalg.solve(matrix(3.0, 0.5, 4.0), torch.tensor([1e-5, 2e-5]).double())
    sight = Foresight(reach=of(3.0), scale=of(scale))
    # A whole step leaves what curving leaves: phi(r) |d|_H, for r below 1e-4 taken as r itself.
    d = whole
    r = abs(d[0].item()) + 3 * abs(d[1].item())
    drift = r * math.sqrt((d @ matrix(3.0, 0.5, 4.0) @ d).item())
    gmax, decrement = sight.bounds(gradient, of(d[0].item()), of(d[1].item()))
    assert gmax.item() == pytest.approx(max(math.sqrt(3) * drift, math.sqrt(4) * drift / scale), rel=1e-6)
    assert decrement.item() == pytest.approx(math.exp(r) * drift**2 / 2, rel=1e-4)
    # No step leaves the gradient itself.
    none = of(0.0)
    gmax, decrement = sight.bounds(gradient, none, none)
    assert gmax.item() == pytest.approx(max(1e-5, 2e-5 / scale))
    assert decrement.item() == pytest.approx(newton_decrement(gradient).item())


def test_of_a_long_step_nothing_is_foreseen() -> None:
    sight = Foresight(reach=of(3.0), scale=of(1.0))
    gradient = grads(1.0, 2.0, 3.0, 0.5, 4.0)
    assert torch.isinf(sight.bounds(gradient, of(0.0), of(2.0))[0]).all()
    assert torch.isfinite(sight.bounds(gradient, of(0.0), of(1.99))[0]).all()


def test_a_state_begins_undecided_and_its_rows_are_taken_together() -> None:
    state = NewtonState.start(
        torch.arange(3.0)[:, None], torch.ones(3, 1), torch.tensor([[True], [False], [False]])
    )
    assert state.b.dtype == torch.float64
    assert state.gmax.isinf().all() and not state.evals.any() and not state.db.any()
    kept = state.select(torch.tensor([2, 0]))
    assert kept.b.tolist() == [[2], [0]]
    assert kept.done.tolist() == [[False], [True]]


def test_rules_are_those_that_the_checks_of_parity_ask_for() -> None:
    assert NewtonRules() == NewtonRules(1e-6, 5e-7, 1e-6, 100, singular=1e-9)


def test_steps_that_overshoot_are_halved_and_counted(solve) -> None:
    levels = {"solver": "newton"}
    calm, wild = (
        solve(levels, data="test", max_iter=most, metrics=False, kind="counting") for most in (1, 8)
    )
    assert calm.counters()["halvings"] == 0, "the start is no step"
    assert 0 < wild.counters()["halvings"] < wild.counters()["pair_evaluations"]
    assert wild.counters()["lambda_max"] > 0, "what is halved is damped"
