"""Quantities in the unit that reads best."""

from __future__ import annotations

from collections.abc import Sequence

MB = 10**6
"""Bytes in what tables call MB."""


def duration(ns: float) -> str:
    """A time in nanoseconds, with three digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def speed(ratio: float | None) -> str:
    """A ratio of times, arm to base, as a factor of speed: ``1.63x faster``; "" of None."""
    return _factor(ratio, "faster", "slower")


def amount(ratio: float | None) -> str:
    """A ratio of amounts as a factor: ``1.63x less``; "" of None."""
    return _factor(ratio, "less", "more")


def _factor(ratio: float | None, below: str, above: str) -> str:
    if ratio is None:
        return ""
    text = f"{_digits(max(ratio, 1 / ratio))}x"
    return text if text == f"{_digits(1.0)}x" else f"{text} {below if ratio < 1 else above}"


def _digits(factor: float, like: float | None = None) -> str:
    """A factor with the digits that it needs, or as many as another of its row has."""
    size = factor if like is None else like
    places = 3 if size < 1.1 else 2 if size < 10 else 1 if size < 100 else 0
    return f"{factor:,.{places}f}"


MEANINGLESS = 100.0
"""Ratio of an interval's ends above which two rounds that differ have given it, and it says nothing."""


def bounds_text(ratio: float | None, low: float | None, high: float | None) -> str:
    """Two ends of an interval, as factors in the direction that `speed` and `amount` name."""
    if ratio is None or low is None or high is None:
        return ""
    if high > MEANINGLESS * low:
        return "unknown"
    ends = (1 / high, 1 / low) if ratio < 1 else (low, high)
    return " .. ".join(_digits(end, like=max(ratio, 1 / ratio)) for end in ends)


NAMED = 5
"""Things that a sentence names; the tables have the rest."""


def few(names: Sequence[str], what: str = "", most: int = NAMED) -> str:
    """Name some things, and count the rest: ``a, b, c, d, e and 2 more packs``."""
    more = " ".join(filter(None, [f" and {len(names) - most} more", what]))
    return ", ".join(names[:most]) + more * (len(names) > most)


def megabytes_more(difference: float | None) -> str:
    """A difference of two amounts of memory in bytes; "same" under a tenth of an MB, "" of None."""
    if difference is None:
        return ""
    size = abs(difference) / MB
    return "same" if size < 0.05 else f"{difference / MB:+.{1 if size < 10 else 0}f} MB"
