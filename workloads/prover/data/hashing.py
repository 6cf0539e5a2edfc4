"""64-bit arithmetic shared by state hashes and corruption keys: SplitMix64 on int64, wrapping around.

Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators". torch shifts int64
arithmetically, so right shifts are masked.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


GOLDEN = _signed(0x9E3779B97F4A7C15)
FIRST = _signed(0xBF58476D1CE4E5B9)
SECOND = _signed(0x94D049BB133111EB)
HALF, QUARTER = 2**32 - 1, 2**16 - 1


def _shifted(x: Tensor, by: int) -> Tensor:
    return (x >> by) & ((1 << (64 - by)) - 1)


def mix(x: Tensor) -> Tensor:
    """One SplitMix64 step of each element.

    Eager kernels wrap around. The C++ that torch.compile generates has signed overflow, which its compiler
    takes as proof that there is none (it did saturate products): compiled code adds and multiplies in halves
    that stay in range.
    """
    plus, times = (
        (wrapping_sum, wrapping_product) if torch.compiler.is_compiling() else (torch.add, torch.mul)
    )
    x = plus(x, GOLDEN)
    x = times(x ^ _shifted(x, 30), FIRST)
    x = times(x ^ _shifted(x, 27), SECOND)
    return x ^ _shifted(x, 31)


def wrapping_sum(x: Tensor, y: int) -> Tensor:
    """x + y modulo 2^64 without an operation that overflows."""
    low = (x & HALF) + (y & HALF)
    high = _shifted(x, 32) + (y >> 32 & HALF) + (low >> 32)
    return _joined(high, low)


def wrapping_product(x: Tensor, y: int) -> Tensor:
    """x * y modulo 2^64 without an operation that overflows: schoolbook in base 2^16."""
    a, b = [(x >> by) & QUARTER for by in (0, 16, 32, 48)], [y >> by & QUARTER for by in (0, 16, 32, 48)]
    # a[1] b[3] and everything beyond are multiples of 2^64 and drop out.
    low = a[0] * b[0] + (((a[0] * b[1] + a[1] * b[0]) & HALF) << 16)
    high = (low >> 32) + ((a[0] * b[1] + a[1] * b[0]) >> 32 << 16)
    high = high + a[0] * b[2] + a[1] * b[1] + a[2] * b[0]
    high = high + ((a[0] * b[3] + a[1] * b[2] + a[2] * b[1] + a[3] * b[0]) << 16)
    return _joined(high, low)


def _joined(high: Tensor, low: Tensor) -> Tensor:
    """The lower halves of both; the sign is set by subtraction, since shifting into it would overflow."""
    high = high & HALF
    return ((high - ((high >> 31) << 32)) * 2**32) | (low & HALF)


def mix_int(value: int) -> int:
    """`mix` of one number, as int64."""
    return int(mix(torch.tensor(_signed(value % 2**64))))


def hash_states(states: Tensor, base: int) -> Tensor:
    """Order-dependent hash of states [..., A, 1+r]: h = mix(h xor key) atom by atom; padding adds nothing."""
    # Ids lie below `base`, so that equal keys are equal atoms.
    key = states[..., 0].to(torch.int64)
    for place in range(1, states.shape[-1]):
        key = key * base + states[..., place]
    real = states[..., 0] != 0
    h = torch.zeros_like(key[..., 0])
    for slot in range(states.shape[-2]):
        h = torch.where(real[..., slot], mix(h ^ key[..., slot]), h)
    return h
