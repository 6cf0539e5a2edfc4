"""Places of survivors, atoms moved to the left, names of variables, and what was visited."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from perfsweep.workloads.prover.data.knowledge import ATOMS
from perfsweep.workloads.prover.maths import packing
from perfsweep.workloads.prover.maths.packing import (
    Packer,
    _in_history,
    canonical,
    left_aligned_by_scan,
    left_aligned_by_sort,
    rank_by_scan,
    rank_by_sort,
)


@pytest.mark.parametrize("rank", [rank_by_scan, rank_by_sort])
def test_survivors_are_numbered_by_row_with_rules_before_facts(rank) -> None:
    alive = [torch.tensor([True, False, True, True]), torch.tensor([True, True, False, True])]
    owners = [torch.tensor([0, 0, 2, 2]), torch.tensor([0, 2, 2, 3])]
    ranks, total = rank(alive, owners, 4)
    assert total.tolist() == [2, 0, 3, 1]
    kept = [part[flags].tolist() for part, flags in zip(ranks, alive, strict=True)]
    assert kept == [[0, 0, 1], [1, 2, 0]]


@pytest.mark.parametrize("align", [left_aligned_by_scan, left_aligned_by_sort])
def test_kept_atoms_move_to_the_left_in_their_order(align) -> None:
    wide = torch.arange(1, 9).view(1, 8, 1).expand(3, 8, 2).contiguous()
    keep = torch.zeros(3, 8, dtype=torch.bool)
    keep[0, [1, 4, 7]] = True
    keep[1] = True
    found = align(wide, keep)
    assert found.shape == (3, ATOMS, 2)
    assert found[0, :, 0].tolist() == [2, 5, 8, 0, 0, 0]
    assert found[1, :, 1].tolist() == [1, 2, 3, 4, 5, 6]
    assert not found[2].any()


def test_variables_are_named_by_their_first_appearance() -> None:
    states = torch.tensor(
        [[[1, 15, 3], [2, 12, 15], [1, 5, 6], [0, 0, 0]], [[1, 6, 6], [1, 6, 7], [0, 0, 0], [0, 0, 0]]]
    )
    assert canonical(states, constants=5).tolist() == [
        [[1, 6, 3], [2, 7, 6], [1, 5, 8], [0, 0, 0]],
        [[1, 6, 6], [1, 6, 7], [0, 0, 0], [0, 0, 0]],
    ]
    assert canonical(states.int(), constants=5).dtype == torch.int32


def test_only_entries_that_are_stored_count_as_visited() -> None:
    history = torch.tensor([[5, 6, 7], [5, 6, 7]])
    stored = torch.tensor([1, 3])
    assert _in_history(torch.tensor([5, 7]), history, stored).tolist() == [True, True]
    assert _in_history(torch.tensor([6, 8]), history, stored).tolist() == [False, False]


@pytest.mark.parametrize(
    ("scan", "rank", "align"),
    [(True, rank_by_scan, left_aligned_by_scan), (False, rank_by_sort, left_aligned_by_sort)],
)
def test_prefix_sums_take_the_place_of_both_sorts(scan: bool, rank, align, monkeypatch) -> None:
    monkeypatch.setattr(packing, "Pruner", lambda kb: None)
    made = Packer(SimpleNamespace(vocabulary=SimpleNamespace(constants=())), scan, ragged=False)  # type: ignore[arg-type]
    assert (made.rank, made.align) == (rank, align)
