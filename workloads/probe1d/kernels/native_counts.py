"""Confusion counts on the CPU in one loop over pairs, from values that a layout holds in ascending order."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from perfsweep.workloads.native import library
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import Csr, Labels
from perfsweep.workloads.probe1d.maths.buckets import Layout
from perfsweep.workloads.probe1d.maths.confusion import Confusion

SOURCE = Path(__file__).with_name("counts.cpp")


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
        self.library = library(SOURCE, "fused_kernel=on")
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
