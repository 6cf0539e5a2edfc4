"""Importance functions of toys in C++: one pass over the rows, forward and backward, and no tensor of hidden features."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from workloads.native import library
from workloads.spd.importance import StackedImportanceFn

SOURCE = Path(__file__).with_name("native.cpp")
SUFFIX = {torch.float32: "f32", torch.float64: "f64"}


class NativeImportance:
    """What `ImportanceFormulas` computes, for contiguous parameters on the host.

    Raises
    ------
    UnsupportedHere
        There is no compiler that can build the kernel.
    """

    def __init__(self, function: StackedImportanceFn) -> None:
        first, second = function.weights
        self.parameters = [first, second, *function.biases]
        self._networks, self._hidden = first.shape[0] * first.shape[1], first.shape[-1]
        kernels, suffix = library(SOURCE, "gradients=native"), SUFFIX[first.dtype]
        self._forward = getattr(kernels, f"importance_forward_{suffix}")
        self._backward = getattr(kernels, f"importance_backward_{suffix}")

    def forward(self, a: Tensor) -> Tensor:
        """g [K, B, C] of activations [K, B, C]."""
        first, second, bias, last = self.parameters
        self._a = a.transpose(1, 2).contiguous()
        g = torch.empty_like(self._a)
        self._run(self._forward, self._a, first, bias, second, last, g)
        return g.transpose(1, 2).contiguous()

    def backward(self, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        """From the gradient towards g [K, B, C]: towards the activations [K, B, C], and of the parameters."""
        first, second, bias, _ = self.parameters
        towards = torch.empty_like(self._a)
        found = [torch.empty_like(parameter) for parameter in self.parameters]
        of_first, of_second, of_bias, of_last = found
        incoming = gradient.transpose(1, 2).contiguous()
        self._run(self._backward, self._a, first, bias, second, incoming, towards, of_first, of_bias, of_second, of_last)
        return towards.transpose(1, 2), found

    def _run(self, kernel: ctypes._NamedFuncPointer, *tensors: Tensor) -> None:
        sizes = (ctypes.c_int64(size) for size in (self._networks, self._a.shape[-1], self._hidden))
        kernel(*sizes, *(ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors))
