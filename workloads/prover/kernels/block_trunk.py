"""The trunk on CPUs, all layers of a block of states at once: in float32, or by bfloat16 hardware."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from perfsweep.workloads import native
from perfsweep.workloads.prover.kernels.native import pointer
from perfsweep.workloads.prover.maths.policy import PolicyShape, Weights

SOURCE = Path(__file__).with_name("trunk.cpp")
WIDTHS = (32, 64, 128, 256, 512)
"""Widths of a trunk that the kernels' blocks hold."""
COLUMN = 16
"""Columns of a weight that lie together; those of a tile, and of the widest vector."""
SHARE = 64
"""States below which another thread would cost more than it takes over."""


@functools.cache
def library(flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The built kernels; see `perfsweep.workloads.native.library`."""
    return native.library(SOURCE, "fused_trunk=on", flags)


def products(low: bool, flags: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Kinds of products here, the fastest first: float32, or tiles and pairs of bfloat16."""
    if not low:
        return ("float32",)
    here = library(flags)
    usable = {"tiles": here.tiles_usable(), "pairs": here.pairs_usable()}
    return tuple(name for name, found in usable.items() if found)


def packed(weight: Tensor, low: bool) -> Tensor:
    """A layer's weight [out, in] as the kernels read it: 16 columns together, rows end to end.

    In bfloat16 two adjacent rows of a column lie side by side, as one lane multiplies them.
    """
    out, deep = weight.shape
    pair = 2 if low else 1
    columns = weight.view(out // COLUMN, COLUMN, deep // pair, pair)
    return columns.permute(0, 2, 1, 3).flatten().to(torch.bfloat16 if low else torch.float32)


class _Layers(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("width", "count")),
        *((name, ctypes.c_void_p) for name in ("weights", "biases", "scales", "shifts")),
    ]


class _Folded(ctypes.Structure):
    _fields_ = [
        ("table", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("first", "second")),
        ("decay", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("bias", "scale", "shift")),
    ]


class BlockTrunk:
    """Layers 1 to L and the hidden layer of a policy, and the first layer where it is folded into tables.

    Parameters
    ----------
    product : one of `products`
    flags : the compiler gets, to build for less than this processor
    table : tables of predicates, first and second arguments [rows, D], multiplied by the first layer's weight
    offsets : where the tables of arguments begin
    """

    def __init__(
        self,
        weights: Weights,
        shape: PolicyShape,
        product: str,
        flags: tuple[str, ...] = (),
        table: Tensor | None = None,
        offsets: tuple[int, int] = (0, 0),
    ) -> None:
        self.width = shape.width
        self.dtype = torch.float32 if product == "float32" else torch.bfloat16
        self._run = getattr(library(flags), f"trunk_{product}")
        self._held = self._layers(weights, shape)
        self._layers_here = _Layers(shape.width, shape.layers, *map(pointer, self._held))
        self.folded = _Folded()
        if table is not None:
            parts = [weights[f"trunk.0.{part}"] for part in ("bias", "scale", "shift")]
            self._held += (table, *parts)
            self.folded = _Folded(pointer(table), *offsets, shape.decay, *map(pointer, parts))

    def _layers(self, weights: Weights, shape: PolicyShape) -> tuple[Tensor, ...]:
        layers = [f"trunk.{layer}" for layer in range(1, shape.layers + 1)]
        low = self.dtype == torch.bfloat16
        product = torch.cat([packed(weights[f"{name}.weight"], low) for name in (*layers, "hidden")])
        biases = torch.stack([weights[f"{name}.bias"] for name in (*layers, "hidden")])
        scales, shifts = (
            torch.cat([biases[0, :0], *(weights[f"{name}.{part}"] for name in layers)])
            for part in ("scale", "shift")
        )
        return product, biases, scales, shifts

    def __call__(self, x: Tensor, rounded: Tensor) -> Tensor:
        """The last product's input, in `rounded` [N, D], which held x [N, D] in the same type."""
        self._shared(lambda part: self._rows(None, x[part], rounded[part]), len(x))
        return rounded

    def of_states(self, states: Tensor, out: Tensor | None = None) -> Tensor:
        """The last product's input, in `out` [N, D] if that is given, of states [N, A, 3] by the tables."""
        states = states.to(torch.int32).contiguous()
        found = torch.empty(len(states), self.width, dtype=self.dtype) if out is None else out
        self._shared(lambda part: self._rows(states[part], None, found[part]), len(states))
        return found

    def _shared(self, run: Callable[[slice], None], rows: int) -> None:
        """Run for all rows, by as many threads as PyTorch has."""
        share = max(SHARE, -(-rows // torch.get_num_threads()))
        if rows <= share:
            return run(slice(None))
        # The kernel holds no lock of Python's, and a state's value depends on no other state.
        parts = [slice(start, start + share) for start in range(0, rows, share)]
        list(_threads().map(run, parts))
        return None

    def _rows(self, states: Tensor | None, x: Tensor | None, out: Tensor) -> None:
        states_at, x_at = (None if tensor is None else pointer(tensor) for tensor in (states, x))
        layers, folded = ctypes.byref(self._layers_here), ctypes.byref(self.folded)
        self._run(ctypes.c_int64(len(out)), layers, states_at, folded, x_at, pointer(out))


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(torch.get_num_threads(), "prover-trunk")


def block_trunk(
    weights: Weights,
    shape: PolicyShape,
    low: bool,
    table: Tensor | None = None,
    offsets: tuple[int, int] = (0, 0),
) -> BlockTrunk | None:
    """The trunk by the fastest product here, None where there is none of this type or width."""
    found = products(low) if shape.width in WIDTHS else ()
    return BlockTrunk(weights, shape, found[0], table=table, offsets=offsets) if found else None


__all__ = ["BlockTrunk", "block_trunk", "packed", "products"]
