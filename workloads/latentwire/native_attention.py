"""The encoder's attention as a hand-written CPU kernel: built on first use, kept in the cache, called by ctypes.

The kernel runs on one thread. Rows are packed behind one another, so padding is neither stored nor computed.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workloads import native
from workloads.errors import UnsupportedHere

SOURCE = Path(__file__).with_name("native_attention.cpp")
HEAD_WIDTHS = (4, 8, 16, 32)
_ENTRIES = {torch.float32: "attention_f32", torch.float64: "attention_f64"}


def library() -> ctypes.CDLL:
    """The built kernel; see `workloads.native.library`."""
    return native.library(SOURCE, "encoder_attn=native")


class Packed(NamedTuple):
    """Rows behind one another: row b has `lengths[b]` positions, at least one, from `starts[b]` on; [B] int64.

    Behind the last row there may be more positions; nothing is computed for them, and they are zero.
    """

    starts: Tensor
    lengths: Tensor


def _call(q: Tensor, kv: Tensor, rows: Packed, heads: int, out: Tensor, lse: Tensor, backward: tuple[Tensor, ...] = ()) -> None:
    own = q.dim() == 2
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (q, kv, rows.starts, rows.lengths, out, lse, *backward)]
    pointers += [ctypes.c_void_p(None)] * (9 - len(pointers))
    sizes = [ctypes.c_int(n) for n in (len(rows.starts), heads, 0 if own else q.shape[1], int(own))]
    width = q.shape[-1] // heads
    if getattr(library(), _ENTRIES[q.dtype])(ctypes.c_int(width), *pointers, *sizes):
        widths = ", ".join(map(str, HEAD_WIDTHS))
        raise UnsupportedHere(f"toggles.encoder_attn=native: heads are {width} wide, and the kernel has: {widths}")


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, starts: Tensor, lengths: Tensor, heads: int) -> Tensor:
        q, kv = q.contiguous(), kv.contiguous()
        out, lse = torch.zeros_like(q), q.new_empty(q.numel() // q.shape[-1] * heads)
        _call(q, kv, Packed(starts, lengths), heads, out, lse)
        ctx.save_for_backward(q, kv, starts, lengths, out, lse)
        ctx.heads = heads
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        q, kv, starts, lengths, out, lse = ctx.saved_tensors
        dq, dkv = torch.zeros_like(q), torch.zeros_like(kv)
        _call(q, kv, Packed(starts, lengths), ctx.heads, out, lse, (grad.contiguous(), dq, dkv))
        return dq, dkv, None, None, None


def attention(q: Tensor, kv: Tensor, rows: Packed, heads: int) -> Tensor:
    """kv [total, 2 w] (keys, then values) and q, the rows' own positions [total, w] or [B, S, w] -> as q"""
    wide = q.dtype if q.dtype in _ENTRIES else torch.float32
    return _Attention.apply(q.to(wide), kv.to(wide), rows.starts, rows.lengths, heads)  # type: ignore[no-any-return]
