"""The hand-written CPU kernels, called by ctypes: sums, confusion counts, and starts near the solution."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from perfsweep.workloads.native import library
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import Csr, Labels
from perfsweep.workloads.probe1d.maths.blocks import Block
from perfsweep.workloads.probe1d.maths.buckets import Bucket, Layout
from perfsweep.workloads.probe1d.maths.confusion import Confusion
from perfsweep.workloads.probe1d.maths.event_sums import Sums
from perfsweep.workloads.probe1d.maths.precision import Precision
from perfsweep.workloads.probe1d.maths.separable import FAR

SOURCE = Path(__file__).with_name("native.cpp")
KINDS = {"hessian": (0, 5), "loss": (1, 6), "value": (2, 1)}


class NativeKernel:
    """One call per bucket over a flat list of pairs; float events are summed in blocks, blocks in float64.

    Parameters come in float64; sums keep their type.
    """

    def __init__(self, precision: Precision, counts: Counts) -> None:
        self.precision, self.counts = precision, counts
        self.library = library(SOURCE, "fused_kernel=on")

    def __call__(self, bucket: Bucket, row: Tensor, b: Tensor, w: Tensor, kind: str) -> Sums:
        """See BucketKernel."""
        return self.over_buckets((bucket,), [0, row.numel()], row + bucket.first, b, w, kind)

    def over_buckets(
        self, buckets: Sequence[Bucket], splits: list[int], rank: Tensor, b: Tensor, w: Tensor, kind: str
    ) -> Sums:
        """See BucketKernel: every bucket writes to its part of one array."""
        number, size = KINDS[kind]
        classes = b.shape[1]
        rank = (rank if classes == 1 else rank.repeat_interleave(classes)).contiguous()
        kept = torch.float64 if b.dtype == torch.float64 else self.precision.sums
        b, w = b.double().contiguous(), w.double().contiguous()
        out = torch.empty((size, rank.numel()), dtype=torch.float64)
        out[:, : splits[0] * classes] = 0
        for bucket, first, last in zip(buckets, splits, splits[1:], strict=False):
            if last > first:
                start, stop = first * classes, last * classes
                row = rank[start:stop] - bucket.first
                self._run(bucket, row, (b, w), number, out, start)
        return tuple(term.view(-1, classes) for term in out.to(kept))

    def _run(
        self, bucket: Bucket, row: Tensor, at: tuple[Tensor, Tensor], number: int, out: Tensor, start: int
    ) -> None:
        self._function(bucket)(
            ctypes.c_void_p(bucket.x.data_ptr()),
            ctypes.c_int64(bucket.width),
            ctypes.c_void_p(row.data_ptr()),
            *(ctypes.c_void_p(part.data_ptr() + start * part.element_size()) for part in at),
            ctypes.c_int64(row.numel()),
            ctypes.c_int64(out.shape[1]),
            ctypes.c_int(number),
            ctypes.c_void_p(out.data_ptr() + start * out.element_size()),
        )
        self.counts.add("fused_launches")
        self.counts.add("kernel_launches")

    def _function(self, bucket: Bucket) -> Callable[..., None]:
        """The variant for the types of events and of parameters."""
        if self.precision.compute == torch.float32:
            return self.library.sums_f32
        return self.library.sums_f64 if bucket.x.dtype == torch.float64 else self.library.sums_f64_x32


COUNTS_SOURCE = Path(__file__).with_name("counts.cpp")


class _Pairs(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("rows", "classes", "wanted")),
        *((name, ctypes.c_void_p) for name in ("columns", "positives", "start", "group", "b", "w")),
        *((name, ctypes.c_void_p) for name in ("tp", "fp", "tn", "fn")),
    ]


class NativeCounts:
    """What `SearchedConfusion` counts, in float64 throughout.

    `layout` holds the values as they are stored, `events` float64 [L] is the number of non-zeros by rank.
    """

    def __init__(
        self, x: Csr, labels: Labels, grid: Tensor, layout: Layout, events: Tensor, counts: Counts
    ) -> None:
        self.library = library(COUNTS_SOURCE, "fused_kernel=on")
        self.layout, self.events, self.counts = layout, events, counts
        self.rows, self.classes = x.rows, grid.numel()
        has, columns = labels_by_row(labels, grid)
        # Each event once for each class of its row.
        stored = int((has.diff() * x.indptr.diff()).sum())
        self.group = torch.empty(stored, dtype=torch.float64)
        self.start = torch.empty(x.latents * self.classes + 1, dtype=torch.int64)
        given = (x.indptr, x.indices.long(), x.values.double(), has, columns)
        kept = [part.contiguous() for part in given]
        rows, latent, value, has, columns = (ctypes.c_void_p(part.data_ptr()) for part in kept)
        self.library.group_values(
            *(rows, ctypes.c_int64(x.rows), latent, value, has, columns, ctypes.c_int64(self.classes)),
            *(ctypes.c_int64(x.latents * self.classes), ctypes.c_void_p(self.start.data_ptr())),
            ctypes.c_void_p(self.group.data_ptr()),
        )

    def __call__(self, columns: Tensor, positives: Tensor, b: Tensor, w: Tensor) -> Confusion:
        """Counts of the classes at `columns`."""
        given = (columns, positives, self.start, self.group, b.double(), w.double())
        kept = [part.contiguous() for part in given]
        found = [torch.empty(b.shape, dtype=torch.int64) for _ in range(4)]
        sizes = (self.rows, self.classes, columns.numel())
        pairs = _Pairs(*sizes, *(part.data_ptr() for part in (*kept, *found)))
        dead = (0, torch.empty(self.layout.dead, 0))
        for first, x in (dead, *((bucket.first, bucket.x) for bucket in self.layout.buckets)):
            own = slice(first, first + x.shape[0])
            run = self.library.count_f64 if x.dtype == torch.float64 else self.library.count_f32
            run(
                *(ctypes.c_void_p(x.data_ptr()), ctypes.c_int64(x.shape[1])),
                *(ctypes.c_void_p(part[own].data_ptr()) for part in (self.layout.order, self.events)),
                *(ctypes.c_int64(x.shape[0]), ctypes.byref(pairs)),
            )
        self.counts.add("confusion_searches", 2 * b.numel())
        return Confusion(*found)


def labels_by_row(labels: Labels, grid: Tensor) -> tuple[Tensor, Tensor]:
    """Classes of the grid by row, int64: row r has columns[has[r] : has[r + 1]]."""
    if labels.multi is not None:
        row, columns = labels.multi.index_select(1, grid).nonzero(as_tuple=True)
        number = torch.bincount(row, minlength=labels.multi.shape[0])
    else:
        columns = labels.positions(grid)
        number = (columns >= 0).long()
        columns = columns[columns >= 0]
    return torch.cat([number.new_zeros(1), number.cumsum(0)]), columns


START_SOURCE = Path(__file__).with_name("node_start.cpp")
NODES = 16
"""Nodes of a latent: its events where they are no more, else two Gauss nodes in each of eight bins."""
_CONSTANTS = ("count", "positives", "prior", "hits", "hit_sum", "scale")


class _Starts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("rank", *_CONSTANTS, "b", "w")]


class NodeStart:
    """Nodes of all latents of a layout of float32 events, `counts` [L] of non-zeros by rank."""

    def __init__(self, layout: Layout, counts: Tensor) -> None:
        self.library = library(START_SOURCE, "fused_kernel=on")
        self.nodes, self.weights = (torch.zeros(counts.numel(), NODES) for _ in range(2))
        for bucket in layout.buckets:
            own = slice(bucket.first, bucket.last)
            self.library.make_nodes(
                ctypes.c_void_p(bucket.x.data_ptr()),
                ctypes.c_int64(bucket.width),
                ctypes.c_void_p(counts[own].data_ptr()),
                ctypes.c_int64(bucket.last - bucket.first),
                ctypes.c_void_p(self.nodes[own].data_ptr()),
                ctypes.c_void_p(self.weights[own].data_ptr()),
            )

    def __call__(self, block: Block, tol: float) -> tuple[Tensor, Tensor]:
        """Starts (b, w) of all pairs of a block, float64 [R, c].

        The non-zeros of a separable pair, whose optimum is far out, are left what `tol` lets them have.
        """
        shape = block.pair.shape
        b, w = (torch.empty(shape, dtype=torch.float64) for _ in range(2))
        rank = block.latent[:, None].expand(shape).contiguous()
        kept = [getattr(block, name).double().expand(shape).contiguous() for name in _CONSTANTS]
        given = _Starts(*(part.data_ptr() for part in (rank, *kept, b, w)))
        self.library.start_on_nodes(
            ctypes.c_void_p(self.nodes.data_ptr()),
            ctypes.c_void_p(self.weights.data_ptr()),
            ctypes.byref(given),
            ctypes.c_double(block.rows),
            ctypes.c_double(FAR * tol * block.rows),
            ctypes.c_int64(b.numel()),
        )
        return b, w
