"""Uniform numbers of PyTorch's generator for CPUs in C++: the same numbers, drawn in vectors."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.native import library

SOURCE = Path(__file__).with_name("uniform.cpp")
SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
WORDS = 624
# Where the state that `Generator.get_state` gives keeps how many words are undrawn (and one), the
# next word's number, and the words.
LEFT, NEXT, FIRST = slice(8, 12), slice(16, 24), slice(24, 24 + 8 * WORDS)


def fill(tensors: Iterable[Tensor], generator: torch.Generator) -> None:
    """Fill contiguous tensors one after the other with numbers in [0, 1), as `Tensor.uniform_` would.

    Raises
    ------
    UnsupportedHere
        There is no compiler that can build the kernel.
    """
    kernels = library(SOURCE, "draws=native")
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
