"""Quantities in the unit that reads best."""

from __future__ import annotations

MB = 2**20
"""Bytes in what tables call MB."""

FACTOR = 2.0
"""From this ratio on, either way, a change reads better as a factor than in percent."""


def duration(ns: float) -> str:
    """A time in nanoseconds, with three digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def percent(ratio: float | None) -> str:
    """A ratio of times as a signed change in percent, or as a factor where it is large; "" of None."""
    if ratio is None:
        return ""
    if not is_large(ratio):
        return f"{(ratio - 1) * 100:+.1f} %"
    return f"{max(ratio, 1 / ratio):.3g}x {'less' if ratio < 1 else 'more'}"


def bounds_text(ratio: float | None, low: float | None, high: float | None) -> str:
    """Two ends of an interval, as factors where the ratio is shown as one."""
    if ratio is None or low is None or high is None:
        return ""
    if not is_large(ratio):
        return f"{(low - 1) * 100:+.1f} .. {(high - 1) * 100:+.1f}"
    ends = (1 / high, 1 / low) if ratio < 1 else (low, high)
    return " .. ".join(f"{end:.3g}x" for end in ends)


def is_large(ratio: float) -> bool:
    """Whether a ratio of times is shown as a factor."""
    return not 1 / FACTOR < ratio < FACTOR


def megabytes_more(difference: float | None) -> str:
    """A difference of two amounts of memory in bytes; "same" under a tenth of an MB, "" of None."""
    if difference is None:
        return ""
    return "same" if abs(difference) < 0.05 * MB else f"{difference / MB:+.1f} MB"
