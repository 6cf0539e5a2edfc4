"""Rotary positions (RoFormer: Su et al. 2021): pairs of entries of queries and keys turned by their position.

An entry and the one half a head further on form a pair, as in Llama's own code and not as in the paper, where
neighbours do: weights of one layout mean nothing in the other.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from perfsweep.workloads.latentwire.presets import LinearRope, LMConfig, RopeScaling, Yarn


def rotations(config: LMConfig) -> Tensor:
    """Radians per position of each pair of entries [e / 2]; long wavelengths stretched as the model says."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    speed = config.rope_theta**-half
    match config.rope_scaling:
        case RopeScaling() as scaling:
            return _stretched(speed, scaling)
        case LinearRope(factor):
            return speed / factor
        case Yarn() as scaling:
            return _blended(speed, scaling, config.rope_theta)
    return speed


def loudness(config: LMConfig) -> float:
    """What cosines and sines are multiplied by."""
    return config.rope_scaling.loudness if isinstance(config.rope_scaling, Yarn) else 1.0


def _blended(speed: Tensor, scaling: Yarn, theta: float) -> Tensor:
    """YaRN's rule: keep pairs that turn often, divide pairs that turn seldom, and interpolate between."""
    pairs = len(speed)

    def pair_that_turns(times: float) -> float:
        return pairs * math.log(scaling.original_max / (2 * math.pi * times)) / math.log(theta)

    first, last = pair_that_turns(scaling.fast), pair_that_turns(scaling.slow)
    if scaling.whole:
        first, last = math.floor(first), math.ceil(last)
    # The upper end is cut at the head's width, not at its number of pairs: so do the models that are trained.
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    width = max(last - first, 0.001)
    divided = ((torch.arange(pairs, dtype=torch.float64) - first) / width).clamp(0, 1)
    return speed * (1 - divided) + speed / scaling.factor * divided


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
