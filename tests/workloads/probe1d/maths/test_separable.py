"""Pairs whose non-zeros all have one label: where they start, and when enough of their way is behind."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from perfsweep.workloads.probe1d.maths.blocks import Block, rows_at
from perfsweep.workloads.probe1d.maths.derivatives import Derivatives, EventSums
from perfsweep.workloads.probe1d.maths.separable import binary_start, tail_is_paid

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


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3)])
def test_rows_of_a_block_are_taken_by_number_whatever_its_width(shape: tuple[int, ...]) -> None:
    values, keep = torch.arange(math.prod(shape)).view(shape), torch.tensor([2, 0])
    assert torch.equal(rows_at(values, keep), values[[2, 0]])


def test_a_start_has_the_smoothed_shares_of_positives() -> None:
    """Worked out by hand, with a fiftieth of a row of prior share: twice that among zeros."""
    made, sum_x = block([10, 30], [4, 2], [20, 50]), of(25.0, -40.0)
    b, w = binary_start(made, sum_x, tol=1e-6)
    for row, (count, hits, positives, mean) in enumerate([(10, 4, 20, 2.5), (30, 2, 50, -4 / 3)]):
        share = positives / ROWS
        zeros = (positives - hits + 0.02 * share) / (ROWS - count + 0.04)
        others = (hits + 0.02 * share) / (count + 0.02)
        first, second = (math.log(p / (1 - p)) for p in (zeros, others))
        assert b[row].item() == pytest.approx(first)
        assert w[row].item() == pytest.approx((second - first) / mean)
