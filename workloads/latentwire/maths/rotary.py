"""Rotary positions (RoFormer: Su et al. 2021): pairs of entries of queries and keys turned by their position.

An entry and the one half a head further on form a pair, as in Llama's own code and not as in the paper, where
neighbours do: weights of one layout mean nothing in the other.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from workloads.latentwire.presets import LMConfig, RopeScaling


def rotations(config: LMConfig) -> Tensor:
    """Radians per position of each pair of entries [e / 2]; long wavelengths stretched as the model says."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    speed = config.rope_theta**-half
    return speed if config.rope_scaling is None else _stretched(speed, config.rope_scaling)


def _stretched(speed: Tensor, scaling: RopeScaling) -> Tensor:
    """Llama 3's rule: leave short wavelengths, divide long ones, blend between."""
    wavelength = 2 * math.pi / speed
    ratio = scaling.original_max / wavelength
    blend = ((ratio - scaling.low_freq) / (scaling.high_freq - scaling.low_freq)).clamp(0, 1)
    return (1 - blend) * speed / scaling.factor + blend * speed


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, h, S, e] turned by its position: the second half of the entries is the imaginary part."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos.to(x.dtype) + turned * sin.to(x.dtype)
