"""Latents whose values are nearly one value."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.probe1d.data.problem import Csr, Labels, constants
from perfsweep.workloads.probe1d.maths.blocks import make_block
from perfsweep.workloads.probe1d.maths.ill_conditioned import beyond_lanes, ill_conditioned


def of(values: list[list[float]]):
    """Constants of latents with these values in the first rows of six."""
    rows = [row for column in values for row in range(len(column))]
    columns = [latent for latent, column in enumerate(values) for _ in column]
    flat = torch.tensor([value for column in values for value in column], dtype=torch.float64)
    order = torch.argsort(torch.tensor(rows), stable=True)
    ends = torch.bincount(torch.tensor(rows), minlength=6).cumsum(0)
    x = Csr(torch.cat([ends.new_zeros(1), ends]), torch.tensor(columns)[order], flat[order], len(values))
    labels = Labels(3, ids=torch.tensor([0, 0, 0, 1, 1, 1]))
    return constants(x, labels, torch.arange(3))


@pytest.mark.parametrize(
    ("values", "ill"),
    [
        ([1.0, 2.0, 3.0], False),
        ([10.0, 10.1, 10.2], True),
        ([-10.0, -10.1, -10.2], True),
        ([10.0, 10.0, 10.0], False),  # two groups of rows determine two numbers
        ([10.0] * 6, True),  # one value in every row
        ([10.0, 10.7], False),
        ([10.0, 10.6], True),  # a variance of 0.09 over 106
    ],
)
def test_values_whose_variance_is_a_thousandth_of_their_square_are(values: list[float], ill: bool) -> None:
    assert ill_conditioned(of([values, [1.0, 5.0]])).tolist() == [ill, False]


def test_a_dead_latent_is_none() -> None:
    assert ill_conditioned(of([[], [1.0, 5.0]])).tolist() == [False, False]


def test_pairs_of_such_latents_and_of_classes_of_no_row_are_left_to_float64() -> None:
    made = of([[10.0, 10.1], [1.0, 5.0]])
    block = make_block(made, torch.arange(3), made.count, torch.float64)
    found = beyond_lanes(block, ill_conditioned(made))
    assert found.tolist() == [[True, True, True], [False, False, True]]
