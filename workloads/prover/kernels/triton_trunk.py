"""The fused pass of a layer on CUDA: one program per row, everything between two products in registers."""

# Triton's compiler, not Python, gives constexpr arguments and results of helpers their types.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from perfsweep.workloads.prover.maths.policy import EPS


@triton.jit
def _activate(
    product_ptr,
    bias_ptr,
    scale_ptr,
    shift_ptr,
    x_ptr,
    next_ptr,
    width,
    eps,
    RESIDUAL: tl.constexpr,
    W: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, W)
    inside = column < width
    y = tl.load(product_ptr + row * width + column, mask=inside, other=0.0).to(tl.float32)
    y = tl.maximum(y + tl.load(bias_ptr + column, mask=inside, other=0.0), 0.0)
    mean = tl.sum(y, 0) / width
    centred = tl.where(inside, y - mean, 0.0)
    factor = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / width + eps)
    scale = tl.load(scale_ptr + column, mask=inside, other=0.0)
    value = centred * factor * scale + tl.load(shift_ptr + column, mask=inside, other=0.0)
    if RESIDUAL:
        value += tl.load(x_ptr + row * width + column, mask=inside, other=0.0)
    tl.store(x_ptr + row * width + column, value, mask=inside)
    tl.store(next_ptr + row * width + column, value.to(next_ptr.dtype.element_ty), mask=inside)


def activate(
    product: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, x: Tensor | None
) -> tuple[Tensor, Tensor]:
    """x + LN(ReLU(product + bias)) in float32 [N, D], in place of a given x; and in the product's type."""
    rows, width = product.shape
    out = torch.empty(rows, width, dtype=torch.float32, device=product.device) if x is None else x
    following = out if product.dtype == torch.float32 else torch.empty_like(product)
    if rows:
        _activate[(rows,)](  # pyright: ignore[reportIndexIssue]
            *(product.contiguous(), bias, scale, shift, out, following, width, EPS),
            RESIDUAL=x is not None,
            W=triton.next_power_of_2(width),
        )
    return out, following
