"""Batches that are kept and given again, and those that cannot be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from perfsweep.workloads.errors import UnsupportedHere
from perfsweep.workloads.training import loading
from perfsweep.workloads.training.loading import KeptBatches, repeated


def kept_of(counts: Counter[str] | None = None) -> KeptBatches[Any]:
    def tensors(batch: Any) -> Iterator[Tensor]:
        yield from [batch] if isinstance(batch, Tensor) else []

    return KeptBatches(tensors, Counter() if counts is None else counts)


@pytest.mark.parametrize(
    ("most", "size", "kept"), [((3, 10**9), 1, 3), ((100, 24), 1, 6), ((100, 25), 1, 7), ((100, 24), 6, 1)]
)
def test_as_many_are_kept_as_batches_or_bytes_allow(
    most: tuple[int, int], size: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (loading.MOST_BATCHES, loading.MOST_BYTES) == (32, 2**30)
    monkeypatch.setattr(loading, "MOST_BATCHES", most[0])
    monkeypatch.setattr(loading, "MOST_BYTES", most[1])
    counts: Counter[str] = Counter()
    batches = (torch.full((size,), number, dtype=torch.float32) for number in range(100))
    given = [int(batch[0]) for batch in islice(repeated(batches, kept_of(counts)), 2 * kept + 1)]
    assert given == [*range(kept), *range(kept), 0]
    assert counts["kept_batches"] == 2 * kept + 1
    assert next(batches)[0] == kept  # no more were loaded


def test_a_loader_that_ends_before_is_repeated_and_an_empty_one_ends() -> None:
    assert list(islice(repeated(iter("ab"), kept_of()), 5)) == list("ababa")
    assert list(repeated(iter(""), kept_of())) == []


@pytest.mark.parametrize("batch", [iter([1]), {"x": [torch.ones(1), iter([1])]}])
def test_a_batch_that_can_be_read_once_only_is_refused(batch: Any) -> None:
    with pytest.raises(UnsupportedHere, match="batches that can be read once only"):
        kept_of().add(batch)


def test_a_batch_that_was_written_to_is_refused() -> None:
    kept, batch = kept_of(), torch.ones(2)
    batch += 1
    kept.add(batch)
    assert kept.again(0) is batch
    batch += 1
    with pytest.raises(UnsupportedHere, match="changes its batches in place"):
        kept.again(0)


def test_batches_of_inference_have_no_version() -> None:
    with torch.inference_mode():
        batch = torch.ones(2)
    kept = kept_of()
    kept.add(batch)
    assert kept.again(0) is batch
