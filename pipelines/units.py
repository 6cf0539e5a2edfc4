"""Quantities in the unit that reads best."""

from __future__ import annotations


def duration(ns: float) -> str:
    """A time in nanoseconds, with three digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"
