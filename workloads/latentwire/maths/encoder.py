"""What is trained: a byte encoder, a pooler to M latents, and one adapter for each frozen model.

Dimensions: B rows, L bytes, M latents, d_z latent width, d width of a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from perfsweep.workloads.latentwire.presets import ENCODER_HEADS as HEADS
from perfsweep.workloads.latentwire.presets import PAD_BYTE

SHAPE_STEP = 256
"""Packed bytes are filled up to a multiple of it for 16-bit products: oneDNN compiles a kernel for each new
shape."""


class Packed(NamedTuple):
    """Rows joined end to end: row b has `lengths[b]` >= 1 positions from `starts[b]` on; [B] int64.

    After the last row there may be more positions; nothing is computed for them, and they are zero.
    """

    starts: Tensor
    lengths: Tensor


PackedAttention = Callable[[Tensor, Tensor, Packed, int], Tensor]
"""Attention of `HEADS` heads over rows without any padding; see `kernels.native_attention`."""

Mask = Tensor | Packed
"""Which keys count [B, 1, 1, L], or rows without any padding."""


class Attention(nn.Module):
    """Multi-head attention whose keys may be masked."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)
        self.o = nn.Linear(width, width)
        self.packed: PackedAttention | None = None

    def forward(self, asked: Tensor, held: Tensor, mask: Mask) -> Tensor:
        """asked [B, S, w], held [B, L, w], mask [B, 1, 1, L] true where a key counts -> [B, S, w]

        Packed rows come as [total, w]; `asked` may be they themselves.
        """
        if isinstance(mask, Packed):
            assert self.packed is not None
            return self.o(self.packed(self.q(asked), self.kv(held), mask, HEADS))
        q = self.q(asked).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        k, v = self.kv(held).unflatten(-1, (2 * HEADS, -1)).transpose(1, 2).chunk(2, dim=1)
        return self.o(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """Self-attention and MLP, normed before or after each."""

    def __init__(self, width: int, norm: str, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.pre = norm == "pre"

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """x [B, L, w] or packed [total, w] -> the same"""
        if self.pre:
            normed = self.norm1(x)
            x = x + self.dropout(self.attention(normed, normed, mask))
            return x + self.dropout(self.outer(F.gelu(self.inner(self.norm2(x)))))
        x = self.norm1(x + self.dropout(self.attention(x, x, mask)))
        return self.norm2(x + self.dropout(self.outer(F.gelu(self.inner(x)))))


def sinusoids(length: int, width: int) -> Tensor:
    """Positions [length, width]: sines in the first half of the entries, cosines in the second."""
    speed = torch.exp(-math.log(10000.0) * torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(length), speed)
    return torch.cat((angles.sin(), angles.cos()), dim=1)[:, :width]


class ByteEncoder(nn.Module):
    """Bytes to vectors; padding never counts as a key, so neither batch mates nor their lengths matter."""

    def __init__(self, width: int, layers: int, max_bytes: int, norm: str, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(PAD_BYTE + 1, width, padding_idx=PAD_BYTE)
        self.layers = nn.ModuleList(EncoderLayer(width, norm, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("positions", sinusoids(max_bytes, width), persistent=False)
        self.positions: Tensor
        self.recompute = False

    def forward(self, source: Tensor, mask: Mask, places: Tensor | None = None) -> Tensor:
        """Bytes [B, L] -> [B, L, d_z]; packed bytes and their `places` in rows [total] -> [total, d_z]"""
        x = self.embedding(source) + (
            self.positions[: source.shape[1]] if places is None else self.positions[places]
        )
        for layer in self.layers:
            x = checkpoint(layer, x, mask, use_reentrant=False) if self.recompute else layer(x, mask)  # type: ignore[assignment]
        return self.norm(x)


class Pooler(nn.Module):
    """M learned queries read the bytes; a gate mixes what they read with what they asked."""

    def __init__(self, width: int, latents: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(latents, width) / math.sqrt(width))
        self.attention = Attention(width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.gate = nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """x [B, L, d_z] or packed [total, d_z] -> [B, M, d_z]"""
        q = self.queries.expand(len(mask.starts) if isinstance(mask, Packed) else x.shape[0], -1, -1)
        o = self.attention(q, x, mask) + q
        o = torch.lerp(q, o, torch.sigmoid(self.gate(self.norm1(o))).to(o.dtype))
        return o + self.outer(F.gelu(self.inner(self.norm2(o))))


class LatentEncoder(nn.Module):
    """Source bytes to latents z."""

    def __init__(
        self, width: int, layers: int, max_bytes: int, latents: int, norm: str, dropout: float
    ) -> None:
        super().__init__()
        self.native = False
        self.bytes = ByteEncoder(width, layers, max_bytes, norm, dropout)
        self.pooler = Pooler(width, latents)

    def pack(self, attention: PackedAttention) -> None:
        """Run rows without any padding, through a kernel that takes them so."""
        self.native = True
        for module in self.modules():
            if isinstance(module, Attention):
                module.packed = attention

    def forward(self, source: Tensor) -> Tensor:
        """source [B, L] -> z [B, M, d_z]"""
        real = source != PAD_BYTE
        if not self.native:
            mask = real[:, None, None, :]
            return self.pooler(self.bytes(source, mask), mask)
        lengths = real.sum(dim=1)
        rows = Packed(lengths.cumsum(0) - lengths, lengths)
        packed, places = source[real], real.nonzero()[:, 1]
        if torch.is_autocast_enabled(source.device.type):
            short = -len(packed) % SHAPE_STEP
            packed, places = F.pad(packed, (0, short), value=PAD_BYTE), F.pad(places, (0, short))
        return self.pooler(self.bytes(packed, rows, places), rows)


class Adapter(nn.Module):
    """Latents to soft tokens of one model, before calibration."""

    def __init__(self, latent_width: int, model_width: int) -> None:
        super().__init__()
        hidden = 2 * latent_width
        self.norm = nn.LayerNorm(latent_width)
        self.w1, self.w2, self.w3 = (
            nn.Linear(latent_width, hidden),
            nn.Linear(hidden, hidden),
            nn.Linear(hidden, model_width),
        )
        self.skip = nn.Linear(latent_width, model_width, bias=False)
        self.film_scale, self.film_shift = (
            nn.Linear(latent_width, model_width),
            nn.Linear(latent_width, model_width),
        )
        self.out_norm = nn.LayerNorm(model_width)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, z: Tensor) -> Tensor:
        """z [B, M, d_z] -> [B, M, d]"""
        u = self.norm(z)
        h = self.w3(F.gelu(self.w2(F.gelu(self.w1(u))))) + self.skip(u)
        h = h * torch.sigmoid(self.film_scale(z)) + self.film_shift(z)
        return self.out_norm(h) * self.scale


def calibrated(prefix: Tensor, rho: Tensor | float) -> Tensor:
    """Each row of prefix [B, M, d] scaled to the embedding table's root mean square."""
    return prefix * (rho * torch.rsqrt(prefix.square().mean(dim=(1, 2), keepdim=True)))


def table_rms(table: Tensor) -> Tensor:
    """Root mean square [] of a whole embedding table, in single precision or better."""
    wide = table.double() if table.dtype == torch.float64 else table.float()
    return wide.square().mean().sqrt()
