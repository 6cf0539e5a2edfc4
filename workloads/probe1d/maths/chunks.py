"""How a pass walks over activations stored by row: the report's host loop, or a plan made once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import Csr


@dataclass(frozen=True)
class Chunk:
    """Events [start, stop) in stored order; `row_index` [stop - start] where labels are gathered by row."""

    start: int
    stop: int
    row_index: Tensor | None


class Chunker(Protocol):
    """Walks over all events once per call."""

    def __call__(self) -> Iterator[Chunk]:
        """The chunks of one pass, in stored order."""
        ...


def row_ranges(indptr: Tensor, limit: int, counts: Counts) -> Iterator[tuple[int, int]]:
    """Row ranges of at least `limit` events; a host loop reads the row pointer one scalar per row."""
    row, rows = 0, indptr.numel() - 1
    while row < rows:
        first, start = row, int(indptr[row])
        while row < rows and int(indptr[row]) - start < limit:
            row += 1
            counts.add("host_row_steps")
        yield first, row


class RebuiltChunks:
    """The report's iterator: boundaries by the host loop, a new row index for each chunk of each pass."""

    def __init__(self, x: Csr, limit: int, counts: Counts) -> None:
        self.device_indptr, self.limit, self.counts = x.indptr, limit, counts
        self.host_indptr = x.indptr.cpu()

    def __call__(self) -> Iterator[Chunk]:
        for first, last in row_ranges(self.host_indptr, self.limit, self.counts):
            yield self.expand(first, last)

    def expand(self, first: int, last: int) -> Chunk:
        """The chunk of rows [first, last) with its row index, built on the device."""
        rows = torch.arange(first, last, device=self.device_indptr.device)
        lengths = self.device_indptr[first + 1 : last + 1] - self.device_indptr[first:last]
        self.counts.add("row_index_builds")
        # No output_size: the report's code lets the device work it out, and the host waits for a GPU.
        index = torch.repeat_interleave(rows, lengths)
        return Chunk(int(self.host_indptr[first]), int(self.host_indptr[last]), index)


class PlannedChunks(RebuiltChunks):
    """The later form: boundaries found once, row indices still built on every pass."""

    def __init__(self, x: Csr, limit: int, counts: Counts) -> None:
        super().__init__(x, limit, counts)
        self.plan = list(row_ranges(self.host_indptr, limit, counts))

    def __call__(self) -> Iterator[Chunk]:
        for first, last in self.plan:
            yield self.expand(first, last)


class CachedChunks:
    """Boundaries and an int32 row index for all events, made once: 4 bytes per activation."""

    def __init__(self, x: Csr, limit: int, counts: Counts) -> None:
        host = x.indptr.cpu()
        row_index = x.row_index(torch.int32)
        counts.add("row_index_builds")
        bounds = [(int(host[first]), int(host[last])) for first, last in row_ranges(host, limit, counts)]
        self.chunks = [Chunk(start, stop, row_index[start:stop]) for start, stop in bounds]

    def __call__(self) -> Iterator[Chunk]:
        return iter(self.chunks)


class EventChunks:
    """Plain event ranges for paths that never ask which row an event lies in."""

    def __init__(self, x: Csr, limit: int) -> None:
        self.chunks = [Chunk(start, min(start + limit, x.nnz), None) for start in range(0, x.nnz, limit)]

    def __call__(self) -> Iterator[Chunk]:
        return iter(self.chunks)
