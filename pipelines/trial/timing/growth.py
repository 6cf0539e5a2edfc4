"""Whether iterations take longer and longer, or memory grows: something is kept from one to the next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BLOCKS = 10
"""Parts of a series whose middles must rise, so that neighbours may resemble one another."""
RISES = 8
"""Of the nine steps between them, the number that must go up: by chance one series in seventy."""
SLOWER = 0.1
"""Share by which the last third must be slower than the first."""
MORE_BYTES = 4 << 20
"""Bytes that must have come in all: an allocator asks for memory by the megabyte."""


def time_growth(times_ns: Sequence[float]) -> float:
    """Share by which iterations at the end take longer than at the beginning; 0 where they do not rise."""
    times = np.asarray(times_ns, float)
    if not _rises(times):
        return 0.0
    third = len(times) // 3
    growth = float(np.median(times[-third:]) / np.median(times[:third]) - 1)
    return growth if growth > SLOWER else 0.0


def memory_growth(taken: Sequence[float]) -> float:
    """Bytes that each iteration adds; 0 where memory does not rise all the time."""
    half = np.asarray(taken[len(taken) // 4 :], float)  # what comes first has its buffers still to make
    if not _rises(half) or half[-1] - half[0] < MORE_BYTES:
        return 0.0
    return float((half[-1] - half[0]) / (len(half) - 1))


def _rises(values: np.ndarray) -> bool:
    """Whether the middles of equal blocks go up nearly always."""
    if len(values) < 4 * BLOCKS:
        return False
    block = len(values) // BLOCKS
    middles = np.median(values[: block * BLOCKS].reshape(BLOCKS, block), axis=1)
    return int((np.diff(middles) > 0).sum()) >= RISES
