"""The hand-written CPU kernel, called by ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from perfsweep.workloads.native import library
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.maths.buckets import Bucket
from perfsweep.workloads.probe1d.maths.event_sums import Sums
from perfsweep.workloads.probe1d.maths.precision import Precision

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
