"""Frozen matrices as stored: floating point, int8 widened when used, or fp8 for GPUs that multiply it."""

# pyright: reportIncompatibleMethodOverride=false
# once_differentiable hides the names of the arguments of `backward`.

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

FP8_MAX = 448.0  # of e4m3


class Weight(nn.Module):
    """A frozen matrix [out, in] with an optional bias, in whatever type it is stored."""

    def __init__(self, matrix: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.matrix = nn.Parameter(matrix, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [.., in] -> [.., out]"""
        return F.linear(x, self.matrix, self.bias)

    def part(self, x: Tensor, first: int, end: int | None) -> Tensor:
        """x [.., in] times outputs `first` to `end`"""
        return F.linear(x, self.matrix[first:end], None if self.bias is None else self.bias[first:end])


class Int8Weight(nn.Module):
    """A matrix [out, in] as int8 with one scale per output; multiplies in the type of its input."""

    def __init__(self, matrix: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        # One scale for each output: a single large row would cost all others their digits.
        scale = matrix.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
        self.whole: Tensor
        self.scale: Tensor
        self.bias: Tensor | None
        self.register_buffer("whole", (matrix.float() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)

    def part(self, x: Tensor, first: int, end: int | None) -> Tensor:
        """x [.., in] times outputs `first` to `end`"""
        bias = None if self.bias is None else self.bias[first:end].to(x.dtype)
        widened = self.whole[first:end].to(x.dtype) * self.scale[first:end].to(x.dtype)
        return F.linear(x, widened, bias)

    def forward(self, x: Tensor) -> Tensor:
        """x [.., in] -> [.., out]"""
        return self.part(x, 0, None)


class _Fp8Product(torch.autograd.Function):
    """x @ w.T with both sides in e4m3 and one scale each; the derivative multiplies in the input's type."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, stored: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(stored, scale)
        rows = x.flatten(0, -2)
        # Activations are scaled anew in every product: their range is not known before.
        x_scale = (rows.abs().amax().float() / FP8_MAX).clamp(min=1e-12)
        narrow = (rows / x_scale.to(rows.dtype)).to(torch.float8_e4m3fn)
        multiply = torch._scaled_mm  # type: ignore[attr-defined]
        out = multiply(narrow, stored.t(), scale_a=x_scale, scale_b=scale, out_dtype=torch.bfloat16)
        return out.view(*x.shape[:-1], -1).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        stored, scale = ctx.saved_tensors
        return grad @ (stored.to(grad.dtype) * scale.to(grad.dtype)), None, None


class Fp8Weight(nn.Module):
    """A matrix [out, in] in e4m3 with one scale."""

    def __init__(self, matrix: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        scale = (matrix.float().abs().amax() / FP8_MAX).clamp(min=1e-12)
        self.whole: Tensor
        self.scale: Tensor
        self.bias: Tensor | None
        self.register_buffer("whole", (matrix.float() / scale).to(torch.float8_e4m3fn))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)

    def part(self, x: Tensor, first: int, end: int | None) -> Tensor:
        """x [.., in] times outputs `first` to `end`"""
        out = _Fp8Product.apply(x, self.whole[first:end], self.scale)
        return out if self.bias is None else out + self.bias[first:end].to(out.dtype)  # type: ignore[operator]

    def forward(self, x: Tensor) -> Tensor:
        """x [.., in] -> [.., out]"""
        return self.part(x, 0, None)


def quantise(model: Any, level: str) -> None:
    """Replace every matrix of the layers; embedding table, head and norms keep their type."""
    kind = {"int8_wo": Int8Weight, "fp8": Fp8Weight}[level]
    for layer in model.layers:
        for name, weight in list(layer.named_children()):
            setattr(
                layer,
                name,
                kind(weight.matrix.detach(), None if weight.bias is None else weight.bias.detach()),
            )
