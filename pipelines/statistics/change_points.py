"""Where the level of a series changes: of an arm's times over versions, one value each.

The best segmentations into pieces of equal mean come from ruptures (Truong, Oudre and Vayatis 2020): for each
number of changes, the least sum of squares by dynamic programming. How many changes there are is decided by a
penalty for each, and the penalty comes from the series itself: it is the one that only `ALPHA` of its own
permutations would clear. Where nothing changed, all orders of the values are equally likely, so a change is
announced in at most that share of series, whatever the values are distributed like. What is correlated from
version to version, as on a machine that drifts, is a change by this measure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST_VERSIONS = 10
"""Of fewer values too few orders are possible for any of them to be rare."""

ALPHA = 0.05
"""Share of series without a change in which one is announced, at most."""

PERMUTATIONS = 399
SHORTEST = 2
"""Values of a piece: one that lies apart from its neighbours on both sides is an outlier."""
MOST = 8
"""Changes that are looked for, of long series."""


@dataclass(frozen=True)
class ChangePoint:
    """A change of level.

    Attributes
    ----------
    index : of the first value on the new level
    shift : mean of the piece that begins there, less that of the piece before; of log times a log ratio
    """

    index: int
    shift: float


@dataclass(frozen=True)
class ChangePoints:
    """All changes of a series, first to last, and the share of its permutations that show as much of one."""

    points: tuple[ChangePoint, ...]
    p: float


def find_change_points(values: Sequence[float], seed: int = 0) -> ChangePoints:
    """Find the changes of level in a series of at least `LEAST_VERSIONS` finite values.

    Raises
    ------
    ValueError
        There are fewer, or one is not finite.
    """
    series = np.asarray(values, float)
    if len(series) < LEAST_VERSIONS or not np.isfinite(series).all():
        raise ValueError(f"change points need at least {LEAST_VERSIONS} finite values")
    series = series - series.mean()  # sums of squares of large, close numbers would lose their digits
    if not series.any():
        return ChangePoints((), 1.0)
    splits = _segmentations(series)
    gains = _gains(series, splits)
    rng = np.random.default_rng(seed)
    chance = np.sort([_strongest(rng.permutation(series)) for _ in range(PERMUTATIONS)])
    p = (1 + int((chance >= _per_change(gains) * (1 - 1e-9)).sum())) / (1 + PERMUTATIONS)
    if p > ALPHA:
        return ChangePoints((), p)
    penalty = chance[math.ceil((1 - ALPHA) * (1 + PERMUTATIONS)) - 1]
    number = 1 + int(np.argmax(gains - penalty * np.arange(1, 1 + len(gains))))
    return ChangePoints(tuple(_points(series, splits[number - 1])), p)


def _points(series: np.ndarray, ends: Sequence[int]) -> list[ChangePoint]:
    """Describe the changes of a segmentation by the ends of its pieces."""
    means = [float(piece.mean()) for piece in np.split(series, ends[:-1])]
    shifts = np.diff(means)
    return [ChangePoint(int(end), float(shift)) for end, shift in zip(ends[:-1], shifts, strict=True)]


def _strongest(series: np.ndarray) -> float:
    """Measure how much any number of changes explains, for each of them."""
    return _per_change(_gains(series, _segmentations(series)))


def _per_change(gains: np.ndarray) -> float:
    return float((gains / np.arange(1, 1 + len(gains))).max())


def _gains(series: np.ndarray, splits: Sequence[Sequence[int]]) -> np.ndarray:
    """Compute twice the log likelihood that 1, 2, ... changes gain, of normal values of unknown variance."""
    total = float(series @ series)
    left = np.array([_squares(series, ends) for ends in splits])
    return len(series) * np.log(total / np.maximum(left, 1e-12 * total))


def _squares(series: np.ndarray, ends: Sequence[int]) -> float:
    """Sum the squares of what is left where each piece has its own mean; the series has mean zero."""
    starts = [0, *ends[:-1]]
    sums = np.add.reduceat(series, starts)
    return float(series @ series - (sums**2 / np.subtract(ends, starts)).sum())


def _segmentations(series: np.ndarray) -> list[list[int]]:
    """Find the best pieces for 1, 2, ... changes, each as the ends of its pieces."""
    from ruptures.detection.kernelcpd import KernelCPD  # takes half a second, and short histories need none

    search = KernelCPD(kernel="linear", min_size=SHORTEST).fit(series[:, None])
    search.predict(n_bkps=min(MOST, len(series) // (2 * SHORTEST)))
    return [list(ends) for _, ends in sorted(search.segmentations_dict.items())]
