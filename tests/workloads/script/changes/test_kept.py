"""The first epoch of a script's loaders, given again: what is the same, and what is loaded as ever."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from perfsweep.workloads.script.changes import loaders
from perfsweep.workloads.script.watched import Watched


@pytest.fixture
def watched() -> Iterator[Watched]:
    with ExitStack() as undo:
        found = Watched(undo)
        loaders.keep_batches(SimpleNamespace(watched=found), "cached")  # type: ignore[arg-type]
        yield found


def rows(count: int = 10, first: float = 0.0) -> TensorDataset:
    return TensorDataset(torch.arange(first, first + count))


def epoch(loader: Any, batches: int | None = None) -> list[list[float]]:
    iterator = iter(loader)
    found = [next(iterator)[0].tolist() for _ in range(len(loader) if batches is None else batches)]
    if batches is None:
        with pytest.raises(StopIteration):
            next(iterator)
    return found


def test_every_epoch_is_the_first_one(watched: Watched) -> None:
    torch.manual_seed(0)
    loader = DataLoader(rows(), 4, shuffle=True)
    first = epoch(loader)
    assert [len(batch) for batch in first] == [4, 4, 2] and sorted(chain(*first)) == list(range(10))
    assert epoch(loader) == epoch(loader) == first
    assert watched.counts["kept_batches"] == watched.counts["batches"] == 9


def test_what_is_evaluated_on_is_loaded_as_it_was(watched: Watched) -> None:
    torch.manual_seed(0)
    loader = DataLoader(rows(), 4, shuffle=True)
    first = epoch(loader)
    with torch.no_grad():
        assert epoch(loader) != epoch(loader)
    assert epoch(loader) == first


def test_each_data_set_has_its_own_batches_and_one_made_anew_goes_on_with_the_old_ones(
    watched: Watched,
) -> None:
    train, other = rows(), rows(first=100.0)
    first, second = epoch(DataLoader(train, 4)), epoch(DataLoader(other, 4))
    assert (first[0], second[0]) == ([0, 1, 2, 3], [100, 101, 102, 103])
    assert epoch(DataLoader(train, 4)) == first and epoch(DataLoader(other, 4)) == second
    del train
    gc.collect()
    assert epoch(DataLoader(rows(first=50.0), 4)) == first
    assert epoch(DataLoader(rows(4, first=50.0), 4)) == [[50, 51, 52, 53]], "an epoch of another length"
