"""Plans of batches and how they are fetched."""

from __future__ import annotations

import pytest

from perfsweep.workloads.spd.data.loading import Plan


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
