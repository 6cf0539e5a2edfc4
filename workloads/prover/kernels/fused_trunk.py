"""The trunk with everything but its products in one pass per layer: C++ on CPUs, Triton on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from perfsweep.workloads.prover.maths.policy import Policy, PolicyShape, Weights, term_tables

if TYPE_CHECKING:
    from perfsweep.workloads.prover.kernels.fused_trunk import BlockTrunk
import ctypes
import functools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from perfsweep.workloads import native
from perfsweep.workloads.prover.kernels.native import pointer

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


Activate = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""(product, bias, scale, shift, x) to x + LN(ReLU(product + bias)) in float32, and in the type of the
product."""


class FusedPolicy(Policy):
    """The same network; `fused_rows` counts rows of layers that went through the fused pass."""

    def __init__(self, weights: Weights, shape: PolicyShape, folded: bool = False, low: bool = False) -> None:
        super().__init__(weights, shape, folded, low)
        self.fused_rows = 0
        self.cpu = not weights["P"].is_cuda
        self.dtype = torch.bfloat16 if low else torch.float32
        self._activate = self._kernel()
        self._buffer = torch.empty(0, shape.width)
        if self.table is not None:
            self.table = self.table.contiguous()
        rows = self.weights["P"].shape[0]
        self.offsets = (rows, rows + self.weights["U"].shape[0])
        self.from_tables = self.cpu and self.table is not None and len(term_tables(self.weights)) == 2
        self.trunk = self._by_blocks() if self.cpu else None

    def _kernel(self) -> Activate:
        if self.cpu:
            from perfsweep.workloads.prover.kernels.native import activate

            return activate
        from perfsweep.workloads.prover.kernels.triton_trunk import activate

        return activate

    def _by_blocks(self) -> BlockTrunk | None:
        from perfsweep.workloads.prover.kernels.fused_trunk import block_trunk

        table = self.table if self.from_tables else None
        return block_trunk(self.weights, self.shape, self.low, table, self.offsets)

    def _layer(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(self.weights[f"trunk.{layer}.{part}"] for part in ("bias", "scale", "shift"))  # type: ignore[return-value]

    def hidden(self, states: Tensor) -> Tensor:
        """What enters the last product: [N, A, 1+r] to [N, D]."""
        self.fused_rows += len(states) * (self.shape.layers + 1)
        if self.trunk is not None and self.from_tables:
            return self.trunk.of_states(states)
        x, following = self._first_layer(states)
        if self.trunk is not None:
            return self.trunk(x, following)
        for layer in range(1, self.shape.layers + 1):
            product = F.linear(following, self.products[f"trunk.{layer}.weight"])
            x, following = self._activate(product, *self._layer(layer), x)
        bias = self.weights["hidden.bias"].to(self.dtype)
        return F.linear(following, self.products["hidden.weight"], bias).relu_()

    def values(self, states: Tensor) -> Tensor:
        """What is kept of a state: [N, A, 1+r] to [N, E] or, folded, [N, D]."""
        h = self.hidden(states)
        return h.float() if self.folded else self.linear(h, "out").float()

    def screening_values(self, states: Tensor) -> Tensor:
        """Values that go into products at once: folded ones stay in 16 bits."""
        return self.hidden(states) if self.folded else self.values(states)

    def state_logits(self, states: Tensor, keys: Tensor, offset: Tensor, owner: Tensor) -> Tensor:
        """Logits [n] of states [n, A, 1+r] whose values are not kept."""
        if self.trunk is None or not self.from_tables:
            return super().state_logits(states, keys, offset, owner)
        self.fused_rows += len(states) * (self.shape.layers + 1)
        if len(self._buffer) < len(states):
            self._buffer = torch.empty(len(states) * 5 // 4, self.shape.width, dtype=self.dtype)
        return self.dots(self.trunk.of_states(states, self._buffer[: len(states)]), keys, offset, owner)

    def dots(self, values: Tensor, keys: Tensor, offset: Tensor, owner: Tensor) -> Tensor:
        """Logits [n] of values [n, .] with the keys [B, .] and offsets [B] of their owners [n]."""
        if not self.cpu:
            return super().dots(values, keys, offset, owner)
        from perfsweep.workloads.prover.kernels.native import dots

        return dots(values, keys, offset, owner)

    def _first_layer(self, states: Tensor) -> tuple[Tensor, Tensor]:
        bias, scale, shift = self._layer(0)
        if self.from_tables and self.table is not None:
            from perfsweep.workloads.prover.kernels.native import first_layer

            decay = self.shape.decay
            return first_layer(states, self.table, self.offsets, decay, bias, scale, shift, self.dtype)
        product = self.first(states) - bias.to(self.dtype)  # the fused pass adds it again
        return self._activate(product.to(self.dtype), bias, scale, shift, None)
