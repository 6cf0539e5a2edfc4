"""How a pass walks over rows of 2, 0, 3, 1 and 4 activations."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import Csr
from perfsweep.workloads.probe1d.maths.chunks import (
    CachedChunks,
    EventChunks,
    PlannedChunks,
    RebuiltChunks,
    row_ranges,
)

INDPTR = torch.tensor([0, 2, 2, 5, 6, 10])
X = Csr(INDPTR, torch.zeros(10, dtype=torch.int64), torch.ones(10), 1)
ROWS = [0, 0, 2, 2, 2, 3, 4, 4, 4, 4]


@pytest.mark.parametrize(
    ("limit", "ranges"),
    [
        (1, [(0, 1), (1, 3), (3, 4), (4, 5)]),
        (2, [(0, 1), (1, 3), (3, 5)]),
        (3, [(0, 3), (3, 5)]),
        (5, [(0, 3), (3, 5)]),
        (6, [(0, 4), (4, 5)]),
        (100, [(0, 5)]),
    ],
)
def test_rows_are_gathered_until_there_are_enough_events(limit: int, ranges: list[tuple[int, int]]) -> None:
    counts = Counts()
    assert list(row_ranges(INDPTR, limit, counts)) == ranges
    assert counts.values["host_row_steps"] == 5


@pytest.mark.parametrize(
    ("kind", "steps", "builds"),
    # Rows that the host steps over, and row indices built, in two passes of three chunks.
    [(RebuiltChunks, 10, 6), (PlannedChunks, 5, 6), (CachedChunks, 5, 1)],
)
def test_every_walk_gives_the_same_chunks_and_counts_what_it_costs(
    kind: type[RebuiltChunks], steps: int, builds: int
) -> None:
    counts = Counts()
    chunker = kind(X, 2, counts)
    for _ in range(2):
        chunks = list(chunker())
        assert [(chunk.start, chunk.stop) for chunk in chunks] == [(0, 2), (2, 5), (5, 10)]
        assert [row for chunk in chunks for row in chunk.row_index.tolist()] == ROWS
    assert (counts.values["host_row_steps"], counts.values["row_index_builds"]) == (steps, builds)


@pytest.mark.parametrize(
    ("limit", "expected"), [(4, [(0, 4), (4, 8), (8, 10)]), (5, [(0, 5), (5, 10)]), (99, [(0, 10)])]
)
def test_plain_event_ranges_know_no_rows(limit: int, expected: list[tuple[int, int]]) -> None:
    chunks = list(EventChunks(X, limit)())
    assert [(chunk.start, chunk.stop) for chunk in chunks] == expected
    assert all(chunk.row_index is None for chunk in chunks)
