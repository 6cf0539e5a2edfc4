"""Plans of batches and how they are fetched."""

from __future__ import annotations

import os
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch

from perfsweep.workloads.spd.data.loading import (
    Feed,
    Loaded,
    Mover,
    Plan,
    RowByRow,
    VectorBatches,
    by_mapped_file,
    collate,
    fetch,
    on_device,
)
from perfsweep.workloads.spd.data.tokens import Rows

CPU = torch.device("cpu")
TOKENS = Rows(np.arange(20, dtype=np.uint16).reshape(10, 2), "tokens")
VECTORS = Rows(np.arange(20, dtype=np.float32).reshape(10, 2), "vectors")


@pytest.mark.parametrize(("drop", "length", "last"), [(True, 3, 3), (False, 4, 1)])
def test_an_epoch_has_its_rows_once_in_an_order_of_its_own(drop: bool, length: int, last: int) -> None:
    plan = Plan(10, 3, seed=1, drop_last=drop)
    batches = list(plan)
    assert len(plan) == len(batches) == length
    assert len(batches[-1]) == last
    rows = [row for batch in batches for row in batch]
    assert len(set(rows)) == len(rows)
    assert rows == plan.order(0)[: len(rows)].tolist()
    assert plan.order(0).tolist() != plan.order(1).tolist() != Plan(10, 3, seed=2).order(1).tolist()


@pytest.mark.parametrize("start", [0, 1, 3, 7])
@pytest.mark.parametrize("drop", [True, False])
def test_a_plan_goes_on_from_any_batch(start: int, drop: bool) -> None:
    whole = [batch.tolist() for batch in islice(Plan(10, 3, 1, drop).without_end(), start + 6)]
    plan = Plan(10, 3, 1, drop)
    plan.start = start
    assert [batch.tolist() for batch in islice(plan.without_end(), 6)] == whole[start:]
    rest = list(plan)
    assert rest == whole[start : start + len(rest)]
    assert len(rest) == len(plan) - start % len(plan)


@pytest.mark.parametrize("rows", [TOKENS, VECTORS], ids=["tokens", "vectors"])
@pytest.mark.parametrize("form", ["mapped", "resident"])
@pytest.mark.parametrize("start", [0, 4])
def test_whole_batches_are_those_of_the_plan(rows: Rows, form: str, start: int) -> None:
    plan = Plan(10, 3, 1)
    plan.start = start
    batches = by_mapped_file(rows, plan, False) if form == "mapped" else on_device(rows, plan, CPU)
    for numbers, loaded in zip(islice(plan.without_end(), 7), batches, strict=False):
        assert loaded.values.tolist() == rows.values[numbers].tolist()
        assert loaded.values.dtype == (torch.float32 if rows.vectors else torch.int64)
        assert (loaded.loaded_by, loaded.fetches) == (os.getpid(), 1 if form == "mapped" else 0)


def test_rows_are_fetched_one_by_one_and_vectors_all_together() -> None:
    one_by_one = collate(fetch(RowByRow(TOKENS), [4, 1]))
    assert one_by_one.values.tolist() == [[8, 9], [2, 3]]
    assert one_by_one.fetches == 2
    together = collate(fetch(VectorBatches(VECTORS), [4, 1, 0]))
    assert together.values.tolist() == [[8, 9], [2, 3], [0, 1]]
    assert together.fetches == 1


def test_batches_are_counted_and_vectors_take_the_trainings_type() -> None:
    counts: Counter[str] = Counter()
    move = Mover(CPU, False, counts, torch.float64)
    feed = Feed(
        iter([Loaded(torch.ones(2), 0, 3), Loaded(torch.ones(2, dtype=torch.int64), os.getpid(), 1)]), move, 5
    )
    assert feed.move(feed.fetch()).dtype == torch.float64
    assert feed.move(feed.fetch()).dtype == torch.int64
    assert feed.taken == 7
    assert (counts["row_fetches"], counts["worker_batches"]) == (4, 1)
    feed.close()
    with pytest.raises(StopIteration):
        feed.fetch()
