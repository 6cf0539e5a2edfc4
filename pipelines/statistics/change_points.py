"""Where the level of a series changes: of an arm's times over versions, one value each.

The best segmentations into pieces of equal mean come from ruptures (Truong, Oudre and Vayatis 2020): for each
number of changes, the least sum of squares by dynamic programming. How many changes there are is decided by
permutations. Where nothing changed, all orders of the values are equally likely; so a change is announced
where at most `ALPHA` of the orders, drawn at random, show as much of one. That share of series without a
change shows one, at most, whatever the values are distributed like. Further changes are tested in the same
way, by orders within the pieces that were found. What is correlated from version to version, as on a machine
that drifts, is a change by this measure.
"""

from __future__ import annotations

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
    """All changes of a series, first to last, and the share of its orders that show as much of any."""

    points: tuple[ChangePoint, ...]
    p: float


@dataclass(frozen=True)
class _Fit:
    """The best pieces for 0, 1, 2, ... changes, each as the ends of its pieces, and what they explain.

    `gains` are twice the log likelihood that is gained over no change, of normal values of unknown variance.
    """

    pieces: tuple[tuple[int, ...], ...]
    gains: np.ndarray

    def more_than(self, number: int) -> tuple[float, int]:
        """The most that changes beyond a number gain, each; and the number that does."""
        beyond = self.gains[number + 1 :] - self.gains[number]
        each = beyond / np.arange(1, 1 + len(beyond))
        best = int(np.argmax(each))
        return float(each[best]), number + 1 + best


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
    fit, rng = _fit(series), np.random.default_rng(seed)
    first, more = _share_of_orders(series, fit, 0, rng)
    p, number = first, 0
    while p <= ALPHA:
        number = more
        if number == len(fit.pieces) - 1:
            break
        p, more = _share_of_orders(series, fit, number, rng)
    return ChangePoints(tuple(_points(series, fit.pieces[number])), first)


def _share_of_orders(
    series: np.ndarray, fit: _Fit, number: int, rng: np.random.Generator
) -> tuple[float, int]:
    """Test a number of changes against more: the p value, and how many there are if it is rejected."""
    gain, more = fit.more_than(number)
    pieces = np.split(series, fit.pieces[number][:-1])
    orders = (np.concatenate([rng.permutation(piece) for piece in pieces]) for _ in range(PERMUTATIONS))
    # An order that is the series, or its reverse, gains the same but for rounding.
    as_much = sum(_fit(order).more_than(number)[0] >= gain * (1 - 1e-9) for order in orders)
    return (1 + as_much) / (1 + PERMUTATIONS), more


def _points(series: np.ndarray, ends: Sequence[int]) -> list[ChangePoint]:
    """Describe the changes of a segmentation by the ends of its pieces."""
    means = [float(piece.mean()) for piece in np.split(series, ends[:-1])]
    shifts = np.diff(means)
    return [ChangePoint(int(end), float(shift)) for end, shift in zip(ends[:-1], shifts, strict=True)]


def _fit(series: np.ndarray) -> _Fit:
    """Find the best segmentations of a series of mean zero."""
    from ruptures.detection.kernelcpd import KernelCPD  # takes half a second, and short histories need none

    search = KernelCPD(kernel="linear", min_size=SHORTEST).fit(series[:, None])
    search.predict(n_bkps=min(MOST, len(series) // (2 * SHORTEST)))
    found = [tuple(ends) for _, ends in sorted(search.segmentations_dict.items())]
    pieces = ((len(series),), *found)
    total = float(series @ series)
    left = np.array([_squares(series, ends) for ends in pieces])
    return _Fit(pieces, len(series) * np.log(total / np.maximum(left, 1e-12 * total)))


def _squares(series: np.ndarray, ends: Sequence[int]) -> float:
    """Sum the squares of what is left where each piece has its own mean."""
    starts = [0, *ends[:-1]]
    sums = np.add.reduceat(series, starts)
    return float(series @ series - (sums**2 / np.subtract(ends, starts)).sum())
