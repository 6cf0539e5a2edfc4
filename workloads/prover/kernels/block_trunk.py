"""The trunk on CPUs, all layers of a block of states at once: in float32, or by bfloat16 hardware."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from workloads import native
from workloads.prover.kernels.native import pointer
from workloads.prover.maths.policy import PolicyShape, Weights

SOURCE = Path(__file__).with_name("trunk.cpp")
WIDTHS = (32, 64, 128, 256, 512)
"""Widths of a trunk that the kernels' blocks hold."""
COLUMN = 16
"""Columns of a weight that lie together; those of a tile, and of the widest vector."""
SHARE = 64
"""States below which another thread would cost more than it takes over."""


@functools.cache
def library(flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The built kernels; see `workloads.native.library`."""
    return native.library(SOURCE, "fused_trunk=on", flags)


def products(low: bool, flags: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Kinds of products here, the fastest first: float32, or tiles and pairs of bfloat16."""
    if not low:
        return ("float32",)
    here = library(flags)
    usable = {"tiles": here.tiles_usable(), "pairs": here.pairs_usable()}
    return tuple(name for name, found in usable.items() if found)


def packed(weight: Tensor, low: bool) -> Tensor:
    """A layer's weight [out, in] as the kernels read it: 16 columns together, rows behind one another.

    In bfloat16 two adjacent rows of a column lie side by side, as one lane multiplies them.
    """
    out, deep = weight.shape
    pair = 2 if low else 1
    columns = weight.view(out // COLUMN, COLUMN, deep // pair, pair)
    return columns.permute(0, 2, 1, 3).flatten().to(torch.bfloat16 if low else torch.float32)


class BlockTrunk:
    """Layers 1 to L and the hidden layer of a policy.

    Parameters
    ----------
    product : one of `products`
    flags : the compiler gets, to build for less than this processor
    """

    def __init__(
        self, weights: Weights, shape: PolicyShape, product: str, flags: tuple[str, ...] = ()
    ) -> None:
        self.shape = shape
        self.run: Callable[..., None] = getattr(library(flags), f"trunk_{product}")
        layers = [f"trunk.{layer}" for layer in range(1, shape.layers + 1)]
        low = product != "float32"
        self.weights = torch.cat([packed(weights[f"{name}.weight"], low) for name in (*layers, "hidden")])
        self.biases = torch.stack([weights[f"{name}.bias"] for name in (*layers, "hidden")])
        self.scales = torch.cat([weights[f"{name}.scale"] for name in layers]) if layers else self.biases[:0]
        self.shifts = torch.cat([weights[f"{name}.shift"] for name in layers]) if layers else self.biases[:0]

    def __call__(self, x: Tensor, rounded: Tensor) -> Tensor:
        """The last product's input, in `rounded` [N, D], which held x [N, D] in the same type; x is lost."""
        share = max(SHARE, -(-len(x) // torch.get_num_threads()))
        if len(x) <= share:
            self._rows(x, rounded)
        else:
            # The kernel holds no lock of Python's, and a state's value depends on no other state.
            list(_threads().map(self._rows, x.split(share), rounded.split(share)))
        return rounded

    def _rows(self, x: Tensor, rounded: Tensor) -> None:
        given = (self.weights, self.biases, self.scales, self.shifts, x, rounded)
        self.run(*map(ctypes.c_int64, (*x.shape, self.shape.layers)), *map(pointer, given))


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(torch.get_num_threads(), "prover-trunk")


def block_trunk(weights: Weights, shape: PolicyShape, low: bool) -> BlockTrunk | None:
    """The trunk by the fastest product here, None where there is none of this type or width."""
    found = products(low) if shape.width in WIDTHS else ()
    return BlockTrunk(weights, shape, found[0]) if found else None


__all__ = ["BlockTrunk", "block_trunk", "packed", "products"]
