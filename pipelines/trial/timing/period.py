"""What a loop shows that is only seen from outside: the period of its two beats, and whether it grows.

A workload knows its cadence; such a loop shows it by the times of its iterations, heavy ones such as rollouts
among light ones. Where they take longer and longer, or memory grows, something is kept from one to the next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

HEAVY = 3.0
"""Times the median from which an iteration is heavy."""
WHOLE = 3
"""Periods that must be seen: two of equal length may be chance."""
EXPLAINED = 0.3
"""Least share of the scatter that a period explains of iterations that it was not found by."""
NEARLY = 0.1
"""A shorter period is taken whose share is less by so much: multiples of a period explain as much."""

APART = 1.5
"""Times the slowest of the others that the least of the heavy ones takes."""

SEEN = 240
"""Iterations that are looked at, where they last no longer than `SEEN_S`."""
SEEN_S = 1.0
LONGEST_S = 8.0
"""Seconds that they may last where heavy ones were seen, and not yet often enough."""

IRREGULAR = 0
"""Instead of a period: there are heavy iterations, and they come at no regular distance."""

BLOCKS = 10
"""Parts of a series whose middles must rise, so that neighbours may resemble one another."""
RISES = 8
"""Of the nine steps between them, the number that must go up: by chance one series in seventy."""
SLOWER = 0.1
"""Share by which the last third must be slower than the first."""
MORE_BYTES = 4 << 20
"""Bytes that must have come in all: an allocator asks for memory by the megabyte."""


def period_of(times_ns: ArrayLike) -> int | None:
    """Iterations after which times repeat; `IRREGULAR`, or None where no iteration is heavy and none repeats.

    Of each candidate, what the iterations of other periods at the same place predict is held against the
    median of all: places that share nothing predict worse than that. On logarithms, so that an outlier is not
    all of the scatter.

    Parameters
    ----------
    times_ns : [N] positive times, in order
    """
    times = np.asarray(times_ns, float)
    logs = np.log(np.maximum(times, 1.0))
    longest = len(logs) // WHOLE
    shares = {period: _explained(logs, period) for period in range(2, longest + 1)}
    best = max(shares.values(), default=0.0)
    if best >= EXPLAINED:
        return next(period for period, share in shares.items() if share >= best - NEARLY)
    return IRREGULAR if len(times) and _stands_apart(times) else None


def _explained(logs: np.ndarray, period: int) -> float:
    """Share of the scatter that the same places of other periods explain."""
    whole = len(logs) // period
    rows = logs[: whole * period].reshape(whole, period)
    scatter = np.abs(rows - np.median(rows)).sum()
    others = np.stack([np.median(np.delete(rows, row, axis=0), axis=0) for row in range(whole)])
    return float(1 - np.abs(rows - others).sum() / scatter) if scatter > 0 else 0.0


def _stands_apart(times: np.ndarray) -> bool:
    """Whether heavy iterations are a kind of their own, and no tail of the scatter of a crowded machine."""
    bound = HEAVY * np.median(times)
    above = times[times > bound]
    return len(above) >= WHOLE and bool(above.min() > APART * times[times <= bound].max())


def heavy(times_ns: ArrayLike) -> tuple[float, float]:
    """How many iterations are heavy, and the share of all time by which they exceed the median."""
    times = np.asarray(times_ns, float)
    median = np.median(times)
    those = times[times > HEAVY * median]
    return float(len(those)), float((those - median).sum() / times.sum())


def suffices(times_ns: list[float]) -> bool:
    """Whether enough iterations were seen: so many, or for so long, and heavy ones often enough."""
    seconds = sum(times_ns) / 1e9
    if len(times_ns) < SEEN and seconds < SEEN_S:
        return False
    count = heavy(times_ns)[0]
    return count == 0 or count > WHOLE or len(times_ns) >= 2 * SEEN or seconds >= LONGEST_S


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
