"""Sums that never change, against their definition over the dense matrix; ends of priors and scales."""

from __future__ import annotations

import math

import pytest
import torch

from perfsweep.workloads.probe1d.data.problem import PRIOR_CLIP, Csr, Labels, Penalty, constants, prior_logit

DENSE = torch.tensor(
    [
        # dead, one event, two, many
        [0.0, 0.0, 3.0, 1.0],
        [0.0, -2.0, 0.0, 2.0],
        [0.0, 0.0, -4.0, -3.0],
        [0.0, 0.0, 0.0, 5.0],
        [0.0, 0.0, 0.0, 0.5],
    ]
)
ONE_EACH = Labels(3, ids=torch.tensor([0, 1, 0, 2, 1]))
SEVERAL = Labels(
    3, multi=torch.tensor([[1, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)
)


def csr() -> Csr:
    rows, columns = DENSE.nonzero(as_tuple=True)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(rows, minlength=5).cumsum(0)])
    return Csr(indptr, columns, DENSE[rows, columns], 4)


@pytest.mark.parametrize("grid", [[0, 1, 2], [2, 0]], ids=str)
@pytest.mark.parametrize("labels", [ONE_EACH, SEVERAL], ids=["one class a row", "several"])
def test_constants_are_the_sums_of_their_definition(labels: Labels, grid: list[int]) -> None:
    asked = torch.tensor(grid)
    found = constants(csr(), labels, asked)
    x, y = DENSE.double(), labels.dense(asked, torch.float64)
    there = (x != 0).double()
    right = {
        "count": there.sum(0),
        "sum_x": x.sum(0),
        "positives": y.sum(0),
        "hits": there.T @ y,
        "hit_sum": x.T @ y,
        "deviation": torch.tensor([0, *(column[column != 0].std(correction=0) for column in x.T[1:])]),
        "scale": torch.tensor([1.0, 2.0, math.sqrt(12.5), math.sqrt(39.25 / 5)], dtype=torch.float64),
    }
    assert found.rows == 5
    for name, value in right.items():
        own = getattr(found, name)
        assert own.dtype == torch.float64 and torch.allclose(own, value, rtol=1e-12), name
    assert torch.equal(found.prior, prior_logit(found.positives, 5))


def test_a_prior_is_the_logit_of_the_share_and_finite_at_its_ends() -> None:
    found = prior_logit(torch.tensor([0, 1, 2, 4]), 4)
    clipped = math.log(PRIOR_CLIP) - math.log1p(-PRIOR_CLIP)
    assert found.tolist() == pytest.approx([clipped, math.log(1 / 3), 0.0, -clipped], rel=1e-6)


def test_a_ridge_weighs_the_slope_in_units_of_the_spread_over_all_rows_and_leaves_the_intercept() -> None:
    found = constants(csr(), ONE_EACH, torch.arange(3), Penalty(0.1, scaled=True))
    spread = DENSE.double().std(0, correction=0)
    assert torch.allclose(found.ridge_w[1:], 0.1 * spread[1:] ** 2, rtol=1e-12)
    assert found.ridge_b == 0
    report = constants(csr(), ONE_EACH, torch.arange(3), Penalty(0.1))
    assert (report.ridge_w.tolist(), report.ridge_b) == ([0.1] * 4, 0.1)


def test_values_that_are_equal_in_every_row_are_measured_by_their_size() -> None:
    same = Csr(torch.arange(6), torch.zeros(5, dtype=torch.int64), torch.full((5,), -3.0), 1)
    found = constants(same, ONE_EACH, torch.arange(3), Penalty(0.1, scaled=True))
    assert found.ridge_w.tolist() == pytest.approx([0.9])
