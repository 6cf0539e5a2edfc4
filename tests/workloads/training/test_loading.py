"""Plans of batches, places in them, pieces, and how batches travel."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.training.batches import Place, Share
from perfsweep.workloads.training.loading import EpochPlan, Mover, Planned, endless, pieces_of, toggled, whole


@pytest.mark.parametrize(("rows", "size", "length"), [(10, 3, 3), (10, 10, 1), (10, 1, 10), (9, 3, 3)])
def test_an_epoch_has_full_batches_of_different_rows(rows: int, size: int, length: int) -> None:
    plan = EpochPlan(rows, size, seed=1)
    batches = list(plan)
    assert len(plan) == len(batches) == length
    assert all(len(batch) == size for batch in batches)
    seen = [row for batch in batches for row in batch]
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(range(rows))


def test_a_plan_begins_where_it_is_told_in_whichever_epoch() -> None:
    first, second = EpochPlan(10, 3, seed=1), EpochPlan(10, 3, seed=1)
    epoch = list(first)
    second.start = 1
    assert list(second) == epoch[1:]
    first.start = 3
    assert list(first) != epoch
    second.start = 5
    assert list(second) == list(first)[2:]
    assert list(EpochPlan(10, 3, seed=2)) != epoch


@pytest.mark.parametrize("size", [0, 11])
def test_a_batch_has_one_row_at_least_and_at_most_all(size: int) -> None:
    with pytest.raises(ConfigError, match=f"batch_size={size} must be from 1 to 10, the rows of the data"):
        EpochPlan(10, size, seed=0)


def test_ranks_share_every_batch() -> None:
    alone = list(EpochPlan(10, 4, seed=1))
    shares = [list(EpochPlan(10, 4, seed=1, share=Share(rank, 2))) for rank in range(2)]
    for batch, *parts in zip(alone, *shares, strict=True):
        assert sorted(parts[0] + parts[1]) == sorted(batch)


class Epochs:
    """Two batches in each epoch, none in the third."""

    def start(self, place: Place) -> tuple[Place, Iterator[Any]]:
        names = [] if place.epoch == 3 else [f"{place.epoch}a", f"{place.epoch}b"]
        return place, iter(names[place.batches :])


def test_batches_come_with_the_place_behind_them_until_an_epoch_has_none() -> None:
    given = endless(Epochs(), Place(1, 1))
    assert [next(given) for _ in range(3)] == [("1b", Place(1, 2)), ("2a", Place(2, 1)), ("2b", Place(2, 2))]
    with pytest.raises(ConfigError, match="the data gave no batch in epoch 3; let data set or loader"):
        next(given)


@pytest.mark.parametrize(
    ("place", "start", "begins"),
    [(Place(0, 2), 2, Place(0, 2)), (Place(2, 1), 7, Place(2, 1)), (Place(0, 3), 3, Place(1, 0))],
)
def test_a_planned_epoch_jumps_to_its_place(place: Place, start: int, begins: Place) -> None:
    plan = EpochPlan(10, 3, seed=1)
    found, _ = Planned([], plan).start(place)
    assert (found, plan.start) == (begins, start)


@pytest.mark.parametrize(
    ("workers", "pinned", "living", "context"), [(0, False, False, None), (2, True, True, "fork")]
)
def test_options_of_a_loader(workers: int, pinned: bool, living: bool, context: str | None) -> None:
    found = toggled(workers=workers, pinned=pinned)
    assert isinstance(found.pop("generator"), torch.Generator)
    assert found == {
        "num_workers": workers,
        "pin_memory": pinned,
        "persistent_workers": living,
        "multiprocessing_context": context,
    }


def test_pieces_are_as_large_as_they_are_told_but_for_the_last() -> None:
    batch = torch.arange(5), torch.arange(5, 10)
    assert [piece[1].tolist() for piece in pieces_of(2)(batch)] == [[5, 6], [7, 8], [9]]
    assert [piece is batch for piece in whole(batch)] == [True]


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
