"""Pairs whose non-zeros all have one label: where they start, and when enough of their way is behind."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from perfsweep.workloads.probe1d.maths.blocks import Block
from perfsweep.workloads.probe1d.maths.derivatives import Derivatives, EventSums
from perfsweep.workloads.probe1d.maths.separable import (
    FAR,
    PSEUDO_ROWS,
    binary_start,
    separable_pairs,
    tail_is_paid,
    tail_metric,
)

ROWS = 100


def of(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def block(count: Any, hits: Any, positives: Any, scale: float = 2.0) -> Block:
    """One pair in each row."""
    size = len(count)
    prior = torch.logit(of(*positives) / ROWS)
    numbers = torch.arange(size)
    same = torch.full((size, 1), scale, dtype=torch.float64)
    zeros = ROWS - of(*count)
    sums = (of(*count), zeros, of(*positives), prior, of(*hits), same)
    return Block(numbers, numbers[:, None], *sums, same, torch.zeros_like(same), 0.0, ROWS)


def logit(share: float) -> float:
    return math.log(share / (1 - share))


def test_pairs_without_a_hit_or_with_nothing_else_are_separable() -> None:
    found = separable_pairs(block([10, 10, 10, 10], [0, 10, 5, 1], [20, 20, 20, 20]))
    assert found.flatten().tolist() == [True, True, False, False]


def test_a_start_takes_values_as_present_or_absent() -> None:
    b, w = binary_start(block([10], [5], [20]), of(30.0), tol=1e-6)
    p0 = (15 + 0.2 * PSEUDO_ROWS) / (90 + 2 * PSEUDO_ROWS)
    p1 = (5 + 0.2 * PSEUDO_ROWS) / (10 + PSEUDO_ROWS)
    assert b.item() == pytest.approx(logit(p0))
    assert w.item() == pytest.approx((logit(p1) - logit(p0)) / 3.0)  # the mean value


def test_values_that_cancel_are_measured_by_their_scale() -> None:
    _, canceled = binary_start(block([10], [5], [20]), of(6.0), tol=1e-6)
    _, plain = binary_start(block([10], [5], [20]), of(6.1), tol=1e-6)
    assert canceled.item() * 2.0 == pytest.approx(plain.item() * 0.61)


@pytest.mark.parametrize(("hits", "sign"), [(0, -1), (10, 1)])
def test_a_separable_pair_starts_where_its_gradient_is_below_the_tolerance(hits: int, sign: int) -> None:
    b, w = binary_start(block([10], [hits], [20]), of(20.0), tol=1e-6)
    far = FAR * 1e-6 * ROWS / 10
    assert sign * (b + 2 * w).item() == pytest.approx(-logit(far), rel=1e-6)


@pytest.mark.parametrize(
    ("count", "hits", "positives"),
    [(0, 0, 20), (10, 5, 5), (10, 0, 0), (10, 10, 100)],
    ids=["dead", "all among some", "no row", "every row"],
)
def test_pairs_that_tell_too_little_start_cold(count: int, hits: int, positives: int) -> None:
    made = block([count], [hits], [positives])
    made.prior.nan_to_num_(neginf=-18.4, posinf=18.4)
    b, w = binary_start(made, of(20.0), tol=1e-6)
    assert (b.item(), w.item()) == (made.prior.item(), 0.0)


def derivatives(g1: float, h1: float = 0.0, h2: float = 1.0) -> Derivatives:
    return Derivatives(None, of(0.0), of(g1), of(1.0), of(h1), of(h2))


@pytest.mark.parametrize(
    ("hits", "m0", "g1", "paid"),
    [
        (0, 1e-4, 1.0, True),  # a millionth of a hundred rows is left
        (0, 1.1e-4, 1.0, False),
        (0, 1.1e-4, 1e-6, True),  # the ridge holds it short of that
        (0, 1.1e-4, 1.1e-6, False),
        (10, 10 - 1e-4, 1.0, True),
        (10, 9.0, 1.0, False),
        (5, 9.0, 1.0, True),  # it is not separable
    ],
)
def test_a_tail_is_paid_when_little_loss_or_slope_is_left(
    hits: int, m0: float, g1: float, paid: bool
) -> None:
    sums = EventSums(of(m0), of(0.0), of(0.0), of(0.0))
    made = block([10], [hits], [20])
    found = tail_is_paid(made, of(-3.0), sums, derivatives(-g1), least=of(1.0), tol=1e-6)
    assert found.item() == paid


def test_padding_is_no_event_of_a_tail() -> None:
    made = block([10], [0], [20])
    padded = Block(**{**vars(made), "zeros": made.zeros - 6})
    sums = EventSums(of(6 / (1 + math.exp(3.0))), of(0.0), of(0.0), of(0.0))
    assert tail_is_paid(padded, of(-3.0), sums, derivatives(1.0), of(1.0), 1e-6).item()
    assert not tail_is_paid(made, of(-3.0), sums, derivatives(1.0), of(1.0), 1e-6).item()


@pytest.mark.parametrize(("hits", "expected"), [(0, 0.5), (5, 2.0)])
def test_w_is_measured_by_events_with_weight_left_in_tails_alone(hits: int, expected: float) -> None:
    found = tail_metric(block([10], [hits], [20]), derivatives(0.0, h1=-4.0, h2=2.0), of(2.0))
    assert found.item() == pytest.approx(expected)
