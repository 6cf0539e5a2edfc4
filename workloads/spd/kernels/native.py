"""A toy's terms and gradients in C++: what `formulas` writes down, in one call; and uniform numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.native import library
from perfsweep.workloads.spd.maths.importance import StackedImportanceFn
from perfsweep.workloads.spd.maths.sites import Operands

SOURCE = Path(__file__).with_name("native.cpp")
SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
GIVEN = 5  # the first of `PARTS`: what differs from one call to the next
PARTS = (
    *("batch", "sources of draw 0", "sources of draw 1", "deltas of draw 0", "deltas of draw 1"),
    *(
        "W1",
        "W2",
        "bias",
        "V1",
        "U1",
        "V2",
        "U2",
        "first weights",
        "first biases",
        "last weights",
        "last biases",
    ),
    *("importances", "terms"),
    *(
        "of V1",
        "of U1",
        "of V2",
        "of U2",
        "of first weights",
        "of first biases",
        "of last weights",
        "of last biases",
    ),
    "workspace",
)


class ToyKernel:
    """Three masked passes of a toy and all that goes into them, for contiguous tensors on the host.

    Parameters
    ----------
    weights : W1 [d, f] and W2 [f, d] of the frozen target
    bias : added after the second module [f]
    pairs : V and U of both modules
    function : importance functions of both modules, kind mlp, with one hidden layer
    coefficients : of the squared errors of both modules replaced, the second alone, the first alone, and of
        minimality

    Attributes
    ----------
    parameters, gradients : everything that is trained, and what a call fills

    Raises
    ------
    UnsupportedHere
        There is no compiler that can build the kernel.
    """

    def __init__(
        self,
        weights: tuple[Tensor, Tensor],
        bias: Tensor,
        pairs: tuple[Operands, Operands],
        function: StackedImportanceFn,
        coefficients: Sequence[float],
    ) -> None:
        kernels, suffix = library(SOURCE, "gradients=native"), SUFFIX[bias.dtype]
        self._fill = getattr(kernels, f"toy_gradients_{suffix}")
        self._numbers = kernels.toy_numbers
        self._numbers.restype = ctypes.c_int64
        first, last = function.weights
        self.parameters = [pairs[0].V, pairs[0].U, pairs[1].V, pairs[1].U]
        self.parameters += [first, function.biases[0], last, function.biases[1]]
        self.gradients = [torch.empty_like(parameter) for parameter in self.parameters]
        self._frozen = [weights[0], weights[1], bias]
        self._coefficients = tuple(coefficients)
        self._shape = first.shape[0], first.shape[1], first.shape[-1]
        self._rows = 0

    def __call__(
        self, batch: Tensor, sources: Sequence[Tensor], deltas: Sequence[Tensor], p: float, beta: float
    ) -> tuple[Tensor, Tensor]:
        """Fill `gradients` with those of the total; terms [4] and importances [K, B, C].

        The terms are minimality, losses of both modules replaced and of each alone, and the total.

        Parameters
        ----------
        batch : [B, f]
        sources, deltas : of two draws, [K, B, C] and [K, B]
        """
        modules, count, _ = self._shape
        terms, lower = batch.new_empty(4), batch.new_empty(modules, count, len(batch))
        self._hold(batch, sources, deltas, lower, terms)
        self._fill(self._sizes, (ctypes.c_double * 6)(*self._coefficients, p, beta), self._parts)
        return terms, lower.transpose(1, 2)

    def _hold(
        self, batch: Tensor, sources: Sequence[Tensor], deltas: Sequence[Tensor], lower: Tensor, terms: Tensor
    ) -> None:
        if len(batch) != self._rows:
            self._prepare(batch)
        # Kept until the next call: pointers alone keep nothing alive.
        self._given = [batch.contiguous(), *(one.contiguous() for one in (*sources, *deltas))]
        self._found = lower, terms
        parts = self._parts
        for place, tensor in enumerate(self._given):
            parts[place] = tensor.data_ptr()
        parts[PARTS.index("importances")], parts[PARTS.index("terms")] = lower.data_ptr(), terms.data_ptr()

    def _prepare(self, batch: Tensor) -> None:
        """Everything that stays while batches have as many rows."""
        self._rows, features = batch.shape
        _, count, hidden = self._shape
        self._sizes = (ctypes.c_int64 * 5)(self._rows, count, hidden, features, len(self._frozen[0]))
        self._workspace = batch.new_empty(self._numbers(self._sizes))
        fixed = [*self._frozen, *self.parameters, None, None, *self.gradients, self._workspace]
        pointers = [tensor.data_ptr() if tensor is not None else 0 for tensor in fixed]
        self._parts = (ctypes.c_void_p * len(PARTS))(*([0] * GIVEN), *pointers)


UNIFORM_SOURCE = Path(__file__).with_name("uniform.cpp")
WORDS = 624
# Where the state that `Generator.get_state` gives keeps how many words are undrawn (and one), the
# next word's number, and the words.
LEFT, NEXT, FIRST = slice(8, 12), slice(16, 24), slice(24, 24 + 8 * WORDS)


def fill_uniform(tensors: Iterable[Tensor], generator: torch.Generator) -> None:
    """Fill contiguous tensors one after the other with the numbers in [0, 1) of `Tensor.uniform_` on a CPU.

    Raises
    ------
    UnsupportedHere
        There is no compiler that can build the kernel.
    """
    kernels = library(UNIFORM_SOURCE, "draws=native")
    state = generator.get_state()
    held = state.numpy()
    left, words = held[LEFT].view(np.int32), held[FIRST].view(np.uint64)
    narrow = words.astype(np.uint32)
    undrawn = int(left[0]) - 1
    for tensor in tensors:
        draw = getattr(kernels, f"uniform_{SUFFIX[tensor.dtype]}")
        draw.restype = ctypes.c_int64
        given = ctypes.c_int64(undrawn), ctypes.c_int64(tensor.numel()), ctypes.c_void_p(tensor.data_ptr())
        undrawn = draw(ctypes.c_void_p(narrow.ctypes.data), *given)
    words[:] = narrow
    left[0], held[NEXT].view(np.int64)[0] = undrawn + 1, WORDS - undrawn
    generator.set_state(state)
