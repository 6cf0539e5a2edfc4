"""Norms, gates and rotations of frozen layers as CPU kernels, one pass each, built on first use.

What the kernels do not have, other types than theirs or weights that want gradients, goes the way of `fused`.
"""

# pyright: reportIncompatibleMethodOverride=false
# once_differentiable hides the names of the arguments of `backward`.

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from perfsweep.workloads import native
from perfsweep.workloads.latentwire.maths import joined_layers

SOURCE = Path(__file__).with_name("native_layers.cpp")
_NAMES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16"}


def library() -> ctypes.CDLL:
    """The built kernels; see `perfsweep.workloads.native.library`."""
    return native.library(SOURCE, "lm_layers=native")


def _call(name: str, sizes: tuple[int | float, ...], *tensors: Tensor) -> None:
    given = [ctypes.c_double(n) if isinstance(n, float) else ctypes.c_int64(n) for n in sizes]
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
    getattr(library(), f"{name}_{_NAMES[tensors[0].dtype]}")(*given, *pointers)


def _rows(x: Tensor) -> int:
    return x.numel() // x.shape[-1]


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        inverse = x.new_empty(_rows(x), dtype=torch.float64 if x.dtype == torch.float64 else torch.float32)
        _call("norm_forward", (_rows(x), x.shape[-1], float(eps)), x, weight, out, inverse)
        ctx.save_for_backward(x, weight, inverse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        x, weight, inverse = ctx.saved_tensors
        out = torch.empty_like(x)
        _call("norm_backward", (_rows(x), x.shape[-1]), x, weight, inverse, grad.contiguous(), out)
        return out, None, None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [.., d] -> [.., d]; statistics at least in single precision."""
    if weight.requires_grad or weight.dtype != x.dtype or x.dtype not in _NAMES:
        return joined_layers.rms_norm(x, weight, eps)
    return _RmsNorm.apply(x, weight, eps)  # type: ignore[no-any-return]


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, joined: Tensor) -> Tensor:
        joined = joined.contiguous()
        ctx.save_for_backward(joined)
        width = joined.shape[-1] // 2
        out = joined.new_empty(*joined.shape[:-1], width)
        _call("gate_forward", (_rows(joined), width), joined, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (joined,) = ctx.saved_tensors
        out = torch.empty_like(joined)
        _call("gate_backward", (_rows(joined), joined.shape[-1] // 2), joined, grad.contiguous(), out)
        return out


def gated(joined: Tensor) -> Tensor:
    """silu(gate) * up of joined [.., 2 ff] -> [.., ff]"""
    return _Gated.apply(joined) if joined.dtype in _NAMES else joined_layers.gated(joined)  # type: ignore[no-any-return]


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, turned: int, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.turned = turned
        ctx.save_for_backward(cos, sin)
        return _turn(x, turned, cos, sin, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(grad, ctx.turned, cos, sin, -1.0), None, None, None


def _turn(x: Tensor, turned: int, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    sizes = (x.numel() // (x.shape[-2] * x.shape[-1]), x.shape[-2], x.shape[-1], turned, _rows(cos), sign)
    _call("rotate", sizes, x, cos, sin, out)
    return out


def rotated(x: Tensor, turned: int, cos: Tensor, sin: Tensor) -> Tensor:
    """The first `turned` heads of x [B, S, H, e] turned by position; cos and sin [S, e] or [B, S, e]."""
    if x.dtype not in _NAMES:
        return joined_layers.rotated(x, turned, cos, sin)
    return _Rotated.apply(x, turned, cos.to(x.dtype).contiguous(), sin.to(x.dtype).contiguous())  # type: ignore[no-any-return]


PIECES = joined_layers.Pieces(rms_norm, gated, rotated)
