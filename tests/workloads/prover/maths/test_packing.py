"""Places of survivors, atoms moved to the left, names of variables, and what was visited."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.prover.data.knowledge import ATOMS
from perfsweep.workloads.prover.maths.packing import _in_history, canonical
from perfsweep.workloads.prover.reference import Reference
from perfsweep.workloads.prover.variants.compaction import Scanned


@pytest.mark.parametrize("arm", [Reference, Scanned])
def test_survivors_are_numbered_by_row_with_rules_before_facts(arm) -> None:
    alive = [torch.tensor([True, False, True, True]), torch.tensor([True, True, False, True])]
    owners = [torch.tensor([0, 0, 2, 2]), torch.tensor([0, 2, 2, 3])]
    ranks, total = arm.ranks(None, alive, owners, 4)
    assert total.tolist() == [2, 0, 3, 1]
    kept = [part[flags].tolist() for part, flags in zip(ranks, alive, strict=True)]
    assert kept == [[0, 0, 1], [1, 2, 0]]


@pytest.mark.parametrize("arm", [Reference, Scanned])
def test_kept_atoms_move_to_the_left_in_their_order(arm) -> None:
    wide = torch.arange(1, 9).view(1, 8, 1).expand(3, 8, 2).contiguous()
    keep = torch.zeros(3, 8, dtype=torch.bool)
    keep[0, [1, 4, 7]] = True
    keep[1] = True
    found = arm.left_aligned(None, wide, keep)
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
