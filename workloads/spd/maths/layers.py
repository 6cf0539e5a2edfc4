"""Layers of the targets that PyTorch lacks, and the two forms of layers that it fuses.

Dimensions: B rows, S positions, H heads, D width of a head, d width of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Conv1D(nn.Module):
    """GPT-2's linear layer: the weight is stored [in, out]."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_in, d_out))
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])


class TanhGelu(nn.Module):
    """GELU by its tanh approximation: written out, eight operations, or PyTorch's kernel."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            return F.gelu(x, approximate="tanh")
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


ACTIVATIONS: dict[str, Callable[[bool], nn.Module]] = {
    "gelu_new": TanhGelu,
    "gelu_pytorch_tanh": TanhGelu,
    "gelu": lambda fused: nn.GELU(),
    "relu": lambda fused: nn.ReLU(),
    "silu": lambda fused: nn.SiLU(),
    "swish": lambda fused: nn.SiLU(),
    "tanh": lambda fused: nn.Tanh(),
}
"""By the names that published configurations have; only the first two have a form that PyTorch fuses."""


class RMSNorm(nn.Module):
    """Root mean square normalisation in float32, written out or PyTorch's."""

    def __init__(self, width: int, fused: bool, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)
        wide = x if x.dtype == torch.float64 else x.float()
        variance = wide.pow(2).mean(-1, keepdim=True)
        return self.weight * (wide * torch.rsqrt(variance + self.eps)).to(x.dtype)


class Rotary(nn.Module):
    """Rotary positions: angles and rotated copies in every call, or a table and one rotation of both."""

    frequencies: Tensor

    def __init__(self, head: int, context: int, fused: bool, base: float = 10000.0) -> None:
        super().__init__()
        frequencies = 1.0 / (base ** (torch.arange(0, head, 2).float() / head))
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.context, self.fused = context, fused
        self._table: tuple[Tensor, Tensor] | None = None

    def forward(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate [B, H, S, D] and [B, H', S, D]."""
        return self._joint(query, key) if self.fused else self._written_out(query, key)

    def _angles(self, positions: int) -> Tensor:
        """[positions, D/2]"""
        numbers = torch.arange(positions, device=self.frequencies.device, dtype=self.frequencies.dtype)
        return torch.outer(numbers, self.frequencies)

    def _joint(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        # Made by the first call, once the module's type and device are known: another type rounds otherwise.
        if self._table is None or self._table[0].dtype != self.frequencies.dtype:
            angles = self._angles(self.context)
            self._table = angles.cos(), angles.sin()
        cos, sin = (part[: query.shape[-2]] for part in self._table)
        both = torch.cat([query, key], dim=1)
        first, second = both.chunk(2, dim=-1)
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        rotated = turned.split([query.shape[1], key.shape[1]], dim=1)
        return rotated[0], rotated[1]

    def _written_out(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        angles = self._angles(query.shape[-2])
        angles = torch.cat([angles, angles], dim=-1)
        cos, sin = angles.cos().to(query.dtype), angles.sin().to(query.dtype)
        return query * cos + _rotate_half(query) * sin, key * cos + _rotate_half(key) * sin


def _rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, S, H*D] -> [B, H, S, D]"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None = None, causal: bool = True
) -> Tensor:
    """Attention of [B, H, S, D] over fewer key heads [B, H', S, D]; returns [B, S, H*D].

    Products of queries and keys are multiplied by `scale`, None for 1/sqrt(D). `causal` reads no later ones.
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale)
    return mixed.transpose(1, 2).flatten(2)
