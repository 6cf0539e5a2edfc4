"""Causal attention with grouped queries: explicit matrix, PyTorch's fused kernels, or flash.

q [B, h, S, e], k and v [B, g, T, e] -> [B, S, h * e]. Where there are fewer queries than keys, the queries
are the last positions: PyTorch's ``is_causal=True`` would align them with the first, so such masks are
written out.

Rotary positions (RoFormer: Su et al. 2021) turn pairs of entries of queries and keys by their position. An
entry and the one half a head further on form a pair, as in Llama's own code and not as in the paper, where
neighbours do: weights of one layout mean nothing in the other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from perfsweep.workloads.latentwire.presets import LinearRope, LMConfig, RopeScaling, Yarn


class Allowed(NamedTuple):
    """Keys a query may see: a bool tensor broadcast to [B, h, S, T], plain causal order, or everything."""

    mask: Tensor | None = None
    causal: bool = False


Attend = Callable[[Tensor, Tensor, Tensor, Allowed], Tensor]


@dataclass(frozen=True)
class Mask:
    """Causal order of a pass whose first `past` keys come before its own positions.

    `visible` [B, 1, S, T] says it outright instead.
    """

    past: int = 0
    visible: Tensor | None = None

    def allowed(
        self,
        length: int,
        device: torch.device,
        asked: slice | Tensor | None = None,
        window: int | None = None,
    ) -> Allowed:
        """What the queries at `asked` (None: all) of `length` positions may see: the last `window` keys."""
        keys = self.past + length
        if self.visible is not None:
            return Allowed(_last_seen(self.visible, window))
        if window is not None and window >= keys:
            window = None
        if isinstance(asked, Tensor):
            at = (asked + self.past)[:, None, :, None]
            return Allowed(_seen(at, torch.arange(keys, device=device), window))  # [B, 1, R, T]
        if asked is None and self.past == 0 and window is None:
            return Allowed(causal=True)
        first, end, _ = (asked or slice(None)).indices(length)
        if first == length - 1 and window is None:
            return Allowed()  # one query at the end sees everything
        return Allowed(_lower_right(self.past + first, self.past + end, keys, device, window))


def _seen(at: Tensor, keys: Tensor, window: int | None) -> Tensor:
    """Whether the query at a position sees a key: it comes not later, and less than `window` before."""
    seen = keys <= at
    return seen if window is None else seen & (keys > at - window)


def _last_seen(visible: Tensor, window: int | None) -> Tensor:
    """Of the keys [.., T] that are visible, in the order of their positions, the last `window`."""
    if window is None:
        return visible
    return visible & (visible.flip(-1).cumsum(-1).flip(-1) <= window)


@functools.lru_cache(maxsize=256)
def _lower_right(first: int, end: int, keys: int, device: torch.device, window: int | None = None) -> Tensor:
    """[end - first, keys]: position i sees keys 0 .. i, or the last `window` of these."""
    asked = torch.arange(first, end, device=device)[:, None]
    return _seen(asked, torch.arange(keys, device=device), window)


def _joined(mixed: Tensor) -> Tensor:
    """[B, h, S, e] -> [B, S, h * e]"""
    return mixed.transpose(1, 2).flatten(2)


def _repeated(x: Tensor, times: int) -> Tensor:
    """[B, g, T, e] -> [B, g * times, T, e]"""
    return x if times == 1 else x.unsqueeze(2).expand(-1, -1, times, -1, -1).flatten(1, 2)


def eager(q: Tensor, k: Tensor, v: Tensor, allowed: Allowed, cap: float | None = None) -> Tensor:
    """The whole matrix of scores, bent to stay below `cap`; softmax in single precision."""
    groups = q.shape[1] // k.shape[1]
    k, v = _repeated(k, groups), _repeated(v, groups)
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    mask = _lower_right(0, q.shape[2], k.shape[2], q.device) if allowed.causal else allowed.mask
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    return _joined(torch.softmax(scores, dim=-1, dtype=wide).to(v.dtype) @ v)


def sdpa(q: Tensor, k: Tensor, v: Tensor, allowed: Allowed) -> Tensor:
    """PyTorch's scaled dot product attention, with whichever kernel it chooses.

    On CPU the 16-bit kernel's backward pass takes several times as long as the one in single precision, casts
    included.
    """
    grouped = q.shape[1] != k.shape[1]
    if q.dtype in (torch.bfloat16, torch.float16) and not q.is_cuda:
        wide = [x.float() for x in (q, k, v)]
        with torch.autocast(q.device.type, enabled=False):
            mixed = F.scaled_dot_product_attention(
                *wide, attn_mask=allowed.mask, is_causal=allowed.causal, enable_gqa=grouped
            )
        return _joined(mixed).to(q.dtype)
    mixed = F.scaled_dot_product_attention(
        q, k, v, attn_mask=allowed.mask, is_causal=allowed.causal, enable_gqa=grouped
    )
    return _joined(mixed)


def flash(q: Tensor, k: Tensor, v: Tensor, allowed: Allowed) -> Tensor:
    """The flash kernel where it can (it knows no masks but the causal one), else what `sdpa` chooses."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if allowed.mask is not None:
        return sdpa(q, k, v, allowed)
    half = q.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled(q.device.type)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION if half else SDPBackend.MATH):
        return sdpa(q, k, v, allowed)


KERNELS: dict[str, Attend] = {"eager": eager, "sdpa": sdpa, "flash": flash}


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
