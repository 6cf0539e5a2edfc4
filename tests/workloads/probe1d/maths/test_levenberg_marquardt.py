"""One damped step and the damping itself, by hand-worked values."""

from __future__ import annotations

import math

import pytest
import torch

from perfsweep.workloads.probe1d.maths.derivatives import Derivatives
from perfsweep.workloads.probe1d.maths.levenberg_marquardt import (
    LATE,
    NAIVE,
    DampingState,
    Retries,
    adapt_damping,
    attempt,
)


def of(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def grads(g0: float, g1: float, h0: float, h1: float, h2: float) -> Derivatives:
    return Derivatives(None, of(g0), of(g1), of(h0), of(h1), of(h2))


@pytest.mark.parametrize(
    ("gain", "clipped", "lam"),
    [
        (0.75, False, 1e-4),
        (0.74, False, 1e-3),
        (0.26, False, 1e-3),
        (0.25, False, 1e-2),
        (0.9, True, 1e-2),  # a clipped step says that the model reaches too far
        (math.nan, False, 1e-3),  # there was no step before
    ],
)
def test_damping_follows_the_gain_of_the_step_before(gain: float, clipped: bool, lam: float) -> None:
    state = DampingState.start(of(0.0), of(0.0))
    assert state.lam.item() == 1e-3
    if not math.isnan(gain):
        state.predicted, state.loss = of(2.0), of(5.0)
    state.clipped |= clipped
    loss = of(5.0 - 2.0 * (0.0 if math.isnan(gain) else gain))
    assert adapt_damping(state, loss, ignore_noise=False).item() == pytest.approx(lam)


@pytest.mark.parametrize(
    ("predicted", "clipped", "ignore", "lam"),
    [
        (1e-8, False, True, 1e-4),
        (1e-8, False, False, 1e-2),
        (1e-8, True, True, 1e-3),
        (1.1e-8, False, True, 1e-2),
    ],
)
def test_predictions_below_rounding_relax_the_damping_where_noise_is_ignored(
    predicted: float, clipped: bool, ignore: bool, lam: float
) -> None:
    state = DampingState.start(of(0.0), of(0.0))
    state.predicted, state.loss = of(predicted), of(1.0)
    state.clipped |= clipped
    assert adapt_damping(state, of(1.0), ignore).item() == pytest.approx(lam)


def test_a_step_solves_the_damped_system() -> None:
    db, dw, predicted, clipped, good = attempt(grads(1.0, 2.0, 3.0, 0.5, 4.0), of(0.1), of(2.0), budget=8.0)
    matrix = torch.tensor([[3.1, 0.5], [0.5, 4.2]], dtype=torch.float64)
    right = torch.linalg.solve(matrix, torch.tensor([1.0, 2.0], dtype=torch.float64))
    assert [db.item(), dw.item()] == pytest.approx(right.tolist())
    x, y = right.tolist()
    assert predicted.item() == pytest.approx(x + 2 * y - (3 * x * x + 2 * 0.5 * x * y + 4 * y * y) / 2)
    assert good.item() and not clipped.item()


def test_a_long_step_is_cut_to_the_budget_in_logits() -> None:
    db, dw, _, clipped, good = attempt(grads(1.0, 2.0, 0.1, 0.0, 0.1), of(0.0), of(4.0), budget=5.0)
    assert clipped.item() and good.item()
    assert math.hypot(db.item(), 2 * dw.item()) == pytest.approx(5.0)
    assert dw.item() == pytest.approx(2 * db.item())


@pytest.mark.parametrize(
    "gradient",
    [
        (0.0, 0.0, 1.0, 0.0, 1.0),  # nothing is predicted
        (1.0, 1.0, 0.0, 0.0, 1e-19),  # no determinant
        (1.0, 1.0, -1.0, 0.0, 1.0),  # uphill
    ],
)
def test_a_step_that_promises_nothing_fails(gradient: tuple[float, ...]) -> None:
    assert not attempt(grads(*gradient), of(0.0), of(1.0), 8.0)[4].item()


def test_pairs_are_tried_again_with_ten_times_the_damping() -> None:
    # The first succeeds at once, the second where 0.5 is reached: -0.4 + lam > 0; the third never; nobody
    # asks for the fourth.
    grad = Derivatives(
        None, of(1, 1, 0, 1), of(0, 0, 0, 0), of(1, -0.4, 1, 1), of(0, 0, 0, 0), of(1, 1, 1, 1)
    )
    lam = of(5e-3, 5e-3, 5e-3, 5e-3)
    wanted = torch.tensor([[True, True, True, False]])
    step, tries = Retries(LATE, lambda left: bool(left.any()))(grad, lam, torch.ones_like(lam), wanted)
    assert tries == 5
    assert step.failed.tolist() == [[False, False, True, False]]
    assert step.lam.tolist()[0] == pytest.approx([5e-3, 0.5, 5e2, 5e-3])
    assert step.db.tolist()[0] == pytest.approx([1 / 1.005, 6.0, 0.0, 0.0])
    assert step.clipped.tolist() == [[False, True, False, False]]
    assert Retries(NAIVE, lambda left: True)(grad, lam, torch.ones_like(lam), wanted)[1] == 6
    assert Retries(NAIVE, lambda left: False)(grad, lam, torch.ones_like(lam), wanted)[1] == 0
