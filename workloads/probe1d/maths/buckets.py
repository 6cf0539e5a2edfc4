"""Activations by latent, in buckets of padded rows: no scatter, no column index, one dense kernel per bucket.

Latents are ranked by their number of non-zeros. A bucket holds a run of ranks whose rows are padded to one
width with x = 0, which *is* a zero row: the zero group shrinks by the padding and no mask is needed. Events
of a row ascend, for nodes in their place and for counts above a threshold.

Chunks are how a pass walks over activations stored by row: the report's host loop, or a plan made once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import Constants, Csr
from perfsweep.workloads.probe1d.maths.precision import BLOCK_EVENTS

GROWTH = 1.25
LANE = 16
WIDE_LANE = 128
SORT_EVENTS = 2**26
"""Events that are sorted at once on a device: bounds the sort's int64 temporaries at full size."""


@dataclass(frozen=True)
class Bucket:
    """Ranks [first, last), ascending events padded to x [last - first, K]."""

    first: int
    last: int
    x: Tensor

    @property
    def width(self) -> int:
        """K."""
        return self.x.shape[1]


@dataclass(frozen=True)
class Layout:
    """All buckets in rank order.

    `order` int64 [L] is the latent at each rank, `slots` float64 [L] the events (padding included) that each
    rank computes in place of rows, `dead` the number of ranks without events, which come first.
    """

    order: Tensor
    slots: Tensor
    buckets: tuple[Bucket, ...]
    dead: int

    @property
    def padded(self) -> int:
        """Stored slots, padding included."""
        return sum(bucket.x.numel() for bucket in self.buckets)


@dataclass(frozen=True)
class Csc:
    """Values by latent: l has values[indptr[l]:indptr[l+1]], in row order; `rows` where asked for."""

    indptr: Tensor
    values: Tensor
    rows: Tensor | None = None


def to_csc(x: Csr, with_rows: bool = False) -> Csc:
    """Sort activations by latent: a counting sort on CPU; elsewhere pieces joined by a counting sort."""
    if x.values.is_cuda:
        return _to_csc_device(x, with_rows)
    from scipy import sparse

    # Row indices as int32 halve what the counting sort moves.
    matrix = sparse.csr_matrix(
        (x.values.numpy(), x.indices.numpy(), x.indptr.numpy()), shape=(x.rows, x.latents)
    ).tocsc()
    rows = torch.from_numpy(matrix.indices) if with_rows else None
    return Csc(torch.from_numpy(matrix.indptr.astype(np.int64)), torch.from_numpy(matrix.data), rows)


def _to_csc_device(x: Csr, with_rows: bool) -> Csc:
    counts = torch.bincount(x.indices, minlength=x.latents)
    ends = counts.cumsum(0)
    indptr = torch.cat([ends.new_zeros(1), ends])
    values = torch.empty_like(x.values)
    rows = torch.empty(x.nnz, dtype=torch.int32, device=x.values.device) if with_rows else None
    row_index = x.row_index(torch.int32) if with_rows else None
    filled = indptr[:-1].clone()
    for start in range(0, x.nnz, SORT_EVENTS):
        part = slice(start, start + SORT_EVENTS)
        columns, order = torch.sort(x.indices[part].to(torch.int32), stable=True)
        columns = columns.long()
        here = torch.bincount(columns, minlength=x.latents)
        first = here.cumsum(0) - here
        place = filled[columns] + torch.arange(columns.numel(), device=columns.device) - first[columns]
        values[place] = x.values[part][order]
        if rows is not None and row_index is not None:
            rows[place] = row_index[part][order]
        filled += here
    return Csc(indptr, values, rows)


def bucket_width(longest: int) -> int:
    """Smallest admitted width that holds `longest` events: vector lanes below, whole float32 blocks above."""
    lane = LANE if longest <= BLOCK_EVENTS else WIDE_LANE
    return -(-longest // lane) * lane


def bucket_edges(counts: list[int]) -> list[int]:
    """Ranks where a bucket ends, for ascending non-zero `counts`: widths in one grow by at most GROWTH."""
    edges, end = [], len(counts)
    while end > 0:
        # From the longest down: a bucket's rows are at least 1/GROWTH of its width (or within one lane).
        longest = counts[end - 1]
        low = min(longest / GROWTH, bucket_width(longest) - LANE)
        start = end - 1
        while start > 0 and counts[start - 1] > low:
            start -= 1
        edges.append(end)
        end = start
    return edges[::-1]


def pad_rows(values: Tensor, starts: Tensor, lengths: Tensor, width: int) -> Tensor:
    """Rows values[start : start + length], padded with zeros to `width`: [len(starts), width]."""
    offset = torch.arange(width, device=values.device)
    index = starts[:, None] + offset
    inside = offset < lengths[:, None]
    return torch.where(inside, values[torch.where(inside, index, 0)], values.new_zeros(()))


def sort_rows(x: Tensor, counts: Tensor) -> Tensor:
    """Rows in ascending order with their padding moved to the end as +inf."""
    slot = torch.arange(x.shape[1], device=x.device)
    x = torch.where(slot < counts[:, None], x, torch.inf)
    if x.is_cuda:
        return torch.sort(x, dim=1).values
    # numpy's vectorised sort is several times faster than torch's on CPU.
    return torch.from_numpy(np.sort(x.numpy(), axis=1))


def build_layout(csc: Csc, dtype: torch.dtype) -> Layout:
    """Rank latents by their number of events and pad them into buckets of `dtype`."""
    lengths = csc.indptr.diff()
    sorted_lengths, order = torch.sort(lengths, stable=True)
    host = sorted_lengths.tolist()
    dead = int(np.searchsorted(host, 0, side="right"))
    slots = torch.zeros(len(host), dtype=torch.float64, device=lengths.device)
    buckets, first = [], dead
    for edge in bucket_edges(host[dead:]):
        last = dead + edge
        width = bucket_width(host[last - 1])
        ranks = order[first:last]
        x = pad_rows(csc.values, csc.indptr[ranks], lengths[ranks], width).to(dtype)
        x = sort_rows(x, lengths[ranks]).masked_fill_(
            torch.arange(width, device=x.device) >= lengths[ranks, None], 0
        )
        buckets.append(Bucket(first, last, x))
        slots[first:last] = width
        first = last
    return Layout(order, slots, tuple(buckets), dead)


def reorder(constants: Constants, order: Tensor) -> Constants:
    """The same constants with latents in rank order."""
    by_latent = ("count", "sum_x", "deviation", "hits", "hit_away", "scale", "ridge_w")
    fields = {name: getattr(constants, name) for name in constants.__dataclass_fields__}
    return Constants(
        **{
            name: value.index_select(0, order) if name in by_latent else value
            for name, value in fields.items()
        }
    )


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
