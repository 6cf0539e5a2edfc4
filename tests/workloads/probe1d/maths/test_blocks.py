"""Pairs in blocks: numbers in the grid, and which constant of a latent, a class or a pair stands where."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.probe1d.data.problem import Constants
from perfsweep.workloads.probe1d.maths.blocks import make_block, slabs


@pytest.mark.parametrize(
    ("size", "expected"),
    [("all", [[0, 1, 2, 3, 4]]), (2, [[0, 1], [2, 3], [4]]), (5, [[0, 1, 2, 3, 4]]), (9, [[0, 1, 2, 3, 4]])],
)
def test_slabs_are_runs_of_classes_of_which_the_last_may_be_short(size: int | str, expected: list) -> None:
    assert [slab.tolist() for slab in slabs(5, size)] == expected


def numbers(*shape: int, start: int) -> torch.Tensor:
    size = torch.Size(shape).numel()
    return torch.arange(start, start + size, dtype=torch.float64).view(shape)


L, C = 3, 4
MADE = Constants(
    rows=100,
    count=numbers(L, start=10),
    sum_x=numbers(L, start=20),
    deviation=numbers(L, start=30),
    positives=numbers(C, start=40),
    prior=numbers(C, start=50),
    hits=numbers(L, C, start=60),
    hit_away=numbers(L, C, start=80),
    scale=numbers(L, start=3),
    ridge_w=numbers(L, start=100),
    ridge_b=0.5,
)
SLOTS = torch.tensor([16.0, 16.0, 32.0])


def test_a_block_from_a_latent_on() -> None:
    block = make_block(MADE, torch.tensor([1, 3]), SLOTS, torch.float32, first=1)
    assert block.latent.tolist() == [1, 2]
    assert block.pair.tolist() == [[5, 7], [9, 11]]
    assert block.count.tolist() == [[11, 11], [12, 12]]
    assert block.zeros.tolist() == [[84, 84], [68, 68]]
    assert block.positives.tolist() == [[41, 43]] * 2
    assert block.prior.tolist() == [[51, 53]] * 2
    assert block.hits.tolist() == [[65, 67], [69, 71]]
    away, means = torch.tensor([[85.0, 87], [89, 91]]), torch.tensor([[21 / 11], [22 / 12]])
    assert torch.allclose(block.hit_sum, away + means * block.hits)
    assert block.scale.tolist() == [[4, 4], [5, 5]]
    assert (block.ridge_w.tolist(), block.ridge_b) == ([[101, 101], [102, 102]], 0.5)
    assert (block.unpenalised().ridge_w.tolist(), block.unpenalised().ridge_b) == ([[0, 0], [0, 0]], 0.0)
    assert block.rows == 100
    assert block.count.dtype == block.hit_sum.dtype == torch.float32
    assert block.double().hits.dtype == block.double().scale.dtype == torch.float64


def test_a_flat_block_has_one_pair_in_each_row_and_lets_some_go() -> None:
    block = make_block(MADE, torch.tensor([1, 3]), SLOTS, torch.float64, flat=True)
    assert block.latent.tolist() == [0, 0, 1, 1, 2, 2]
    assert block.pair.tolist() == [[1], [3], [5], [7], [9], [11]]
    kept = block.select(torch.tensor([4, 1]))
    assert kept.latent.tolist() == [2, 0]
    assert kept.pair.tolist() == [[9], [3]]
    assert kept.zeros.tolist() == [[68], [84]]
    assert kept.positives.tolist() == [[41], [43]]
    assert kept.rows == 100
