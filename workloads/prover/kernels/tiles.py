"""The trunk in bfloat16 by matrix tiles (AMX) of CPUs: all layers of a block of states in one call."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import torch
from torch import Tensor

from workloads import native
from workloads.prover.kernels.native import pointer
from workloads.prover.maths.policy import PolicyShape, Weights

SOURCE = Path(__file__).with_name("tiles.cpp")
WIDTHS = (32, 64, 128, 256, 512)
"""Widths of a trunk that the kernel keeps in registers."""
TILE, DEPTH = 16, 32


@functools.cache
def library() -> ctypes.CDLL:
    """The built kernel; see `workloads.native.library`."""
    return native.library(SOURCE, "fused_trunk=on")


def usable(shape: PolicyShape) -> bool:
    """Whether this processor has tiles, and a trunk of this width fits them."""
    return shape.width in WIDTHS and bool(library().tiles_usable())


def tiled(weight: Tensor) -> Tensor:
    """A layer's weight [out, in] as the kernel reads it: tiles of 16 columns, 32 rows in adjacent pairs."""
    out, deep = weight.shape
    pairs = weight.to(torch.bfloat16).view(out // TILE, TILE, deep // DEPTH, DEPTH // 2, 2)
    return pairs.permute(0, 2, 3, 1, 4).flatten()


class TiledTrunk:
    """Layers 1 to L and the hidden layer of a policy."""

    def __init__(self, weights: Weights, shape: PolicyShape) -> None:
        self.shape = shape
        layers = [f"trunk.{layer}" for layer in range(1, shape.layers + 1)]
        self.weights = torch.cat([tiled(weights[f"{name}.weight"]) for name in (*layers, "hidden")])
        self.biases = torch.stack([weights[f"{name}.bias"] for name in (*layers, "hidden")])
        self.scales = torch.cat([weights[f"{name}.scale"] for name in layers]) if layers else self.biases[:0]
        self.shifts = torch.cat([weights[f"{name}.shift"] for name in layers]) if layers else self.biases[:0]

    def __call__(self, x: Tensor, rounded: Tensor) -> Tensor:
        """The last product's input, in `rounded` [N, D]; x [N, D] in float32 and bfloat16 are both lost."""
        given = (self.weights, self.biases, self.scales, self.shifts, x, rounded)
        library().trunk(*map(ctypes.c_int64, (*x.shape, self.shape.layers)), *map(pointer, given))
        return rounded


__all__ = ["TiledTrunk", "tiled", "usable"]
