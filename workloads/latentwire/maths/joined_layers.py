"""Layers of a frozen model with joined projections and hand-written derivatives.

What upstream's modules do in many small operations is done in few, and the backward pass keeps one tensor
where autograd would keep three. Weights get no gradients here unless they ask for them (the control arm that
does not freeze).
"""

# pyright: reportIncompatibleMethodOverride=false
# once_differentiable hides the names of the arguments of `backward`.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from perfsweep.workloads.latentwire.maths.passes import LayerContext
from perfsweep.workloads.latentwire.maths.stored_weights import Weight


def join(layer: Any) -> None:
    """Replace q, k, v by `qkv` and gate, up by `gate_up`."""
    layer.qkv = _side_by_side(layer.q, layer.k, layer.v)
    layer.gate_up = _side_by_side(layer.gate, layer.up)
    for name in ("q", "k", "v", "gate", "up"):
        delattr(layer, name)


def _side_by_side(*parts: Weight) -> Weight:
    """One matrix with the outputs of all."""
    biases = [part.bias.detach() for part in parts if part.bias is not None]
    return Weight(torch.cat([part.matrix.detach() for part in parts]), torch.cat(biases) if biases else None)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class _RmsNorm(torch.autograd.Function):
    """y = w * x / rms(x); keeps x and one number per position."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = _wide(x)
        # Norm, then square: no squared copy of x as large as x itself.
        inverse = (
            torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
            .square_()
            .div_(x.shape[-1])
            .add_(eps)
            .rsqrt_()
        )
        ctx.save_for_backward(x, weight, inverse)
        return (
            (wide * inverse).to(x.dtype).mul_(weight)
            if weight.dtype == x.dtype
            else (wide * inverse).to(x.dtype) * weight
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, weight, inverse = ctx.saved_tensors
        scaled = _wide(grad) * _wide(weight)
        normed = _wide(x) * inverse
        of_weight = (
            (_wide(grad) * normed).flatten(0, -2).sum(0).to(weight.dtype) if ctx.needs_input_grad[1] else None
        )
        # A change along the normed x changes rms(x) alone, so that part of the gradient drops out.
        along = (scaled * normed).mean(-1, keepdim=True)
        return scaled.sub_(normed.mul_(along)).mul_(inverse).to(x.dtype), of_weight, None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [.., d] -> [.., d]; statistics at least in single precision."""
    return _RmsNorm.apply(x, weight, eps)  # type: ignore[no-any-return]


class _Gated(torch.autograd.Function):
    """silu(gate) * up of joined [.., 2 ff]; keeps the joined tensor alone."""

    @staticmethod
    def forward(ctx: Any, joined: Tensor) -> Tensor:
        ctx.save_for_backward(joined)
        gate, up = joined.chunk(2, dim=-1)
        return nn.functional.silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (joined,) = ctx.saved_tensors
        gate, up = joined.chunk(2, dim=-1)
        # Written into the halves of one tensor: joining two would copy both.
        out = torch.empty_like(joined)
        of_gate, of_up = out.chunk(2, dim=-1)
        torch.mul(grad, nn.functional.silu(gate), out=of_up)
        of_gate.copy_(torch.ops.aten.silu_backward(grad * up, gate))
        return out


def gated(joined: Tensor) -> Tensor:
    """[.., 2 ff] -> [.., ff]"""
    return _Gated.apply(joined)  # type: ignore[no-any-return]


class _Rotated(torch.autograd.Function):
    """The first `turned` heads of [B, S, H, e] turned by their position; keeps no activation."""

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
    """A rotation by `sign` times the angle: the derivative is the inverse rotation."""
    out = x.clone(memory_format=torch.contiguous_format)
    half = x.shape[-1] // 2
    cos, sin = cos.to(x.dtype).unsqueeze(-2), sin.to(x.dtype).unsqueeze(-2)[..., :half]
    part, heads = out[..., :turned, :], x[..., :turned, :]
    part.mul_(cos)
    part[..., :half].addcmul_(heads[..., half:], sin, value=-sign)
    part[..., half:].addcmul_(heads[..., :half], sin, value=sign)
    return out


def rotated(x: Tensor, turned: int, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, S, H, e], cos and sin [S, e] or [B, S, e] -> [B, S, H, e]"""
    return _Rotated.apply(x, turned, cos, sin)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Pieces:
    """Functions of a joined layer between its products, called as those of this module."""

    rms_norm: Callable[[Tensor, Tensor, float], Tensor] = rms_norm
    gated: Callable[[Tensor], Tensor] = gated
    rotated: Callable[[Tensor, int, Tensor, Tensor], Tensor] = rotated


PIECES = Pieces()


def queries_keys_values(
    pieces: Pieces, layer: Any, config: Any, x: Tensor, context: LayerContext
) -> tuple[Tensor, Tensor, Tensor]:
    """x [B, S, d] -> q [B, h, S or R, e], k and v [B, g, S, e]"""
    h, g, rows, turns = config.n_heads, config.n_kv_heads, context.rows, context.position_embeddings
    norms = ((h, layer.q_norm), (g, layer.k_norm))

    def turned(y: Tensor, heads: int, at: Any = slice(None)) -> Tensor:
        return y if turns is None else pieces.rotated(y, heads, turns[0][at], turns[1][at])

    if rows is None:
        joined = layer.qkv(x).unflatten(-1, (h + 2 * g, config.head_dim))
        q, k, v = turned(_normed(pieces, joined, norms, config), h + g).split((h, g, g), dim=2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    wide = h * config.head_dim
    q = layer.qkv.part(rows.of(x), 0, wide).unflatten(-1, (h, config.head_dim))
    kv = layer.qkv.part(x, wide, None).unflatten(-1, (2 * g, config.head_dim))
    q = turned(_normed(pieces, q, norms[:1], config), h, rows.positions)
    k, v = turned(_normed(pieces, kv, norms[1:], config), g).split((g, g), dim=2)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def _normed(pieces: Pieces, x: Tensor, norms: tuple[tuple[int, Any], ...], config: Any) -> Tensor:
    """x [B, S, H, e], its first runs of heads normed, by weights that span a head or several."""
    if any(weight is None for _, weight in norms):
        return x
    *runs, rest = x.split((*(n for n, _ in norms), x.shape[2] - sum(n for n, _ in norms)), dim=2)
    normed = [
        pieces.rms_norm(run.flatten(2).unflatten(2, (-1, len(weight))), weight, config.rms_eps).view(
            run.shape
        )
        for run, (_, weight) in zip(runs, norms, strict=True)
    ]
    return torch.cat((*normed, rest), dim=2)
