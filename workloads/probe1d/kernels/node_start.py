"""A start near the solution on the CPU: pairs solved on nodes in place of their events, in one loop."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from perfsweep.workloads.native import library
from perfsweep.workloads.probe1d.maths.blocks import Block
from perfsweep.workloads.probe1d.maths.buckets import Layout
from perfsweep.workloads.probe1d.maths.separable import FAR

SOURCE = Path(__file__).with_name("node_start.cpp")
NODES = 16
"""Nodes of a latent: its events where they are no more, else two Gauss nodes in each of eight bins."""
_CONSTANTS = ("count", "positives", "prior", "hits", "hit_sum", "scale")


class _Starts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("rank", *_CONSTANTS, "b", "w")]


class NodeStart:
    """Nodes of all latents of a layout of float32 events, `counts` [L] of non-zeros by rank."""

    def __init__(self, layout: Layout, counts: Tensor) -> None:
        self.library = library(SOURCE, "fused_kernel=on")
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
