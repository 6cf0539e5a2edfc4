"""The encoder's attention as a hand-written CPU kernel: built on first use, cached, called by ctypes.

The kernel runs on one thread. Rows are packed without gaps, so padding is neither stored nor computed.
Heads of eight entries have kernels of their own: by matrix tiles, as precise; where others multiply pairs of
bfloat16, by these for heads that come in bfloat16, and a faster one in float32.
"""

# pyright: reportIncompatibleMethodOverride=false
# once_differentiable hides the names of the arguments of `backward`.

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from perfsweep.workloads import native
from perfsweep.workloads.errors import UnsupportedHere
from perfsweep.workloads.latentwire.maths.encoder import Packed

SOURCE = Path(__file__).with_name("native_attention.cpp")
TILES = Path(__file__).with_name("attention_tiles.cpp")
LANES = Path(__file__).with_name("attention_lanes.cpp")
OWN_HEAD = 8
"""Entries of the heads that have kernels of their own."""
HEAD_WIDTHS = (4, 8, 16, 32)
_ENTRIES = {torch.float32: "attention_f32", torch.float64: "attention_f64"}


def library() -> ctypes.CDLL:
    """The built kernel; see `perfsweep.workloads.native.library`."""
    return native.library(SOURCE, "encoder_attn=native")


@functools.cache
def tiles() -> ctypes.CDLL | None:
    """The built kernel by tiles, None where the processor has none."""
    found = native.library(TILES, "encoder_attn=native")
    return found if found.tiles_usable() else None


@functools.cache
def lanes() -> ctypes.CDLL | None:
    """The built kernel by pairs of bfloat16 and by float32, None where the processor multiplies no pairs."""
    found = native.library(LANES, "encoder_attn=native")
    return found if found.lanes_usable() else None


def build() -> None:
    """Build what this processor may be asked for, rather than inside the first step."""
    library()
    if tiles() is None:
        lanes()


def _own(width: int) -> ctypes.CDLL | None:
    """The kernel by lanes where it is the one for heads of `width` entries."""
    return lanes() if width == OWN_HEAD and tiles() is None else None


def _computed_in(width: int, dtype: torch.dtype) -> torch.dtype:
    """The type that heads of `width` entries are given to a kernel in."""
    if dtype in _ENTRIES:
        return dtype
    return dtype if dtype == torch.bfloat16 and _own(width) is not None else torch.float32


def _kernel(width: int, dtype: torch.dtype, low: bool) -> Callable[..., int]:
    if width == OWN_HEAD and dtype == torch.float32 and (by_tiles := tiles()) is not None:
        return by_tiles.attention_tiles_low if low else by_tiles.attention_tiles
    if dtype != torch.float64 and (by_lanes := _own(width)) is not None:
        return by_lanes.attention_lanes_low if dtype == torch.bfloat16 else by_lanes.attention_lanes
    return getattr(library(), _ENTRIES[dtype])


class _Form(NamedTuple):
    """How many heads, and whether their weights may be rounded to 16 bits."""

    heads: int
    low: bool


def _call(
    q: Tensor,
    kv: Tensor,
    rows: Packed,
    form: _Form,
    out: Tensor,
    lse: Tensor,
    backward: tuple[Tensor, ...] = (),
) -> None:
    own = q.dim() == 2
    pointers = [
        ctypes.c_void_p(t.data_ptr()) for t in (q, kv, rows.starts, rows.lengths, out, lse, *backward)
    ]
    pointers += [ctypes.c_void_p(None)] * (9 - len(pointers))
    sizes = [ctypes.c_int(n) for n in (len(rows.starts), form.heads, 0 if own else q.shape[1], int(own))]
    width = q.shape[-1] // form.heads
    if _kernel(width, q.dtype, form.low)(ctypes.c_int(width), *pointers, *sizes):
        widths = ", ".join(map(str, HEAD_WIDTHS))
        raise UnsupportedHere(
            f"toggles.encoder_attn=native: heads are {width} wide, and the kernel has: {widths}"
        )


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, starts: Tensor, lengths: Tensor, form: _Form) -> Tensor:
        q, kv = q.contiguous(), kv.contiguous()
        exact = torch.promote_types(q.dtype, torch.float32)
        out = torch.zeros_like(q, dtype=exact)
        lse = q.new_empty(q.numel() // q.shape[-1] * form.heads, dtype=exact)
        _call(q, kv, Packed(starts, lengths), form, out, lse)
        ctx.save_for_backward(q, kv, starts, lengths, out, lse)
        ctx.form = form
        return out.to(q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        q, kv, starts, lengths, out, lse = ctx.saved_tensors
        dq, dkv = torch.zeros_like(q), torch.zeros_like(kv)
        _call(q, kv, Packed(starts, lengths), ctx.form, out, lse, (grad.contiguous(), dq, dkv))
        return dq, dkv, None, None, None


def attention(q: Tensor, kv: Tensor, rows: Packed, heads: int) -> Tensor:
    """kv [total, 2 w] (keys, then values) and q, the rows' own positions [total, w] or [B, S, w] -> as q"""
    kind = _computed_in(q.shape[-1] // heads, q.dtype)
    return _Attention.apply(
        q.to(kind), kv.to(kind), rows.starts, rows.lengths, _Form(heads, q.dtype == torch.bfloat16)
    )  # type: ignore[no-any-return]
