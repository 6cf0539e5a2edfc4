"""Plans of batches, places in them, pieces, and how batches travel."""

from __future__ import annotations

import os
from collections import Counter

import pytest
import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.training.batches import Place, Share
from perfsweep.workloads.training.loading import (
    EpochPlan,
    Mover,
    Planned,
    data_loader,
    endless,
    endless_batches,
    pieces_of,
    whole,
)


@pytest.mark.parametrize(("rows", "size", "length"), [(10, 3, 3), (10, 10, 1)])
def test_an_epoch_has_full_batches_of_different_rows(rows: int, size: int, length: int) -> None:
    plan = EpochPlan(rows, size, seed=1)
    batches = list(plan)
    assert len(plan) == len(batches) == length
    assert all(len(batch) == size for batch in batches)
    seen = [row for batch in batches for row in batch]
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(range(rows))


@pytest.mark.parametrize("size", [0, 11])
def test_a_batch_has_one_row_at_least_and_at_most_all(size: int) -> None:
    with pytest.raises(ConfigError, match=f"batch_size={size} must be from 1 to 10, the rows of the data"):
        EpochPlan(10, size, seed=0)


def test_a_plan_goes_on_within_any_epoch_and_ranks_take_their_share_of_each_batch() -> None:
    plan, second = EpochPlan(10, 3, seed=1), EpochPlan(10, 3, seed=1, share=Share(1, 3))
    first = list(plan)
    plan.start = second.start = 3
    next_epoch = list(plan)
    assert first != next_epoch and list(second) == [batch[1:2] for batch in next_epoch]
    placed = endless(Planned(plan, plan), Place(0, 2))
    assert [next(placed) for _ in range(3)] == [
        (first[2], Place(0, 3)),
        (next_epoch[0], Place(1, 1)),
        (next_epoch[1], Place(1, 2)),
    ]
    plan.start = 4
    loader = data_loader(range(10), batch_sampler=plan, collate_fn=list, workers=0, pinned=False)  # type: ignore[arg-type]
    following = endless_batches(loader, plan)
    assert [next(following) for _ in range(2)] == next_epoch[1:]


def test_a_batch_is_cut_into_pieces_of_which_the_last_may_be_smaller() -> None:
    batch = (torch.arange(5), torch.arange(5))
    assert [piece[1].tolist() for piece in pieces_of(2)(batch)] == [[0, 1], [2, 3], [4]]
    assert list(whole(batch)) == [batch]


@pytest.mark.parametrize("non_blocking", [False, True])
def test_a_batch_of_another_process_is_counted_and_a_copy_from_pageable_memory_waits(
    non_blocking: bool,
) -> None:
    counts: Counter[str] = Counter()
    move = Mover(torch.device("cpu"), non_blocking, counts)
    moved = move({"x": torch.ones(2)}, os.getpid())
    assert moved["x"].tolist() == [1, 1]
    move(torch.ones(2), os.getpid() + 1)
    assert counts == {"worker_batches": 1, "pinned_batches": 0, "unwaited_copies": 0}
