"""The hand-written CPU kernel, called by ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from workloads.native import library
from workloads.probe1d.counters import Counts
from workloads.probe1d.maths.buckets import Bucket
from workloads.probe1d.maths.event_sums import Sums
from workloads.probe1d.maths.precision import Precision

SOURCE = Path(__file__).with_name("native.cpp")
KINDS = {"hessian": (0, 5), "loss": (1, 6)}


class NativeKernel:
    """One call per bucket over a flat list of pairs; float events are summed in blocks, blocks in float64."""

    def __init__(self, precision: Precision, counts: Counts) -> None:
        self.precision, self.counts = precision, counts
        self.library = library(SOURCE, "fused_kernel=on")

    def __call__(self, bucket: Bucket, row: Tensor, b: Tensor, w: Tensor, kind: str) -> Sums:
        """See BucketKernel."""
        number, size = KINDS[kind]
        classes = b.shape[1]
        pairs = (row if classes == 1 else row.repeat_interleave(classes)).contiguous()
        b, w = b.reshape(-1).contiguous(), w.reshape(-1).contiguous()
        out = torch.empty((size, pairs.numel()), dtype=torch.float64)
        weight = ctypes.c_void_p(None if bucket.weight is None else bucket.weight.data_ptr())
        self._function(bucket)(
            ctypes.c_void_p(bucket.x.data_ptr()),
            weight,
            ctypes.c_int64(bucket.width),
            ctypes.c_void_p(pairs.data_ptr()),
            ctypes.c_void_p(b.data_ptr()),
            ctypes.c_void_p(w.data_ptr()),
            ctypes.c_int64(pairs.numel()),
            ctypes.c_int(number),
            ctypes.c_void_p(out.data_ptr()),
        )
        self.counts.add("fused_launches")
        self.counts.add("kernel_launches")
        return tuple(term.view(-1, classes) for term in out.to(self.precision.sums))

    def _function(self, bucket: Bucket) -> Callable[..., None]:
        """The variant for the types of events and of parameters."""
        if self.precision.compute == torch.float32:
            return self.library.sums_f32
        return self.library.sums_f64 if bucket.x.dtype == torch.float64 else self.library.sums_f64_x32
