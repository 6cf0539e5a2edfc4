"""A Gaussian-process surrogate of log times: main effects and pairwise interactions, shrunk towards none.

The best linear unbiased prediction (Henderson 1975) of every arm from the measured ones: an effect
that few and noisy arms suggest counts for less than one that many agree on, and no arm has to be there for
the others to be used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfsweep.workloads.api import LevelValue

Point = tuple[int, ...]
"""An arm: for each factor the number of its value."""

MAIN_SD, PAIR_SD, REST_SD = 0.3, 0.08, 0.01
"""Standard deviations, before anything is measured, of a main effect, of an interaction of two, and of all
that is left."""
LENGTH_SCALE = 1.5
"""Doublings over which sizes still tell much about one another: the length scale of a Gaussian kernel."""


@dataclass(frozen=True)
class Factor:
    """A toggle with the values that are tried; the first is the baseline's, unless `start` says other.

    Attributes
    ----------
    sizes : log2 of each value of a ladder, None for a value that is no number; empty where the values have no
        order
    """

    name: str
    values: tuple[LevelValue | None, ...]
    sizes: tuple[float | None, ...] = ()
    start: int = 0

    def correlations(self) -> np.ndarray:
        """[V, V] correlation of what any two values do."""
        numbers = range(len(self.values))
        return np.array([[self.correlation(one, other) for other in numbers] for one in numbers])

    def correlation(self, one: int, other: int) -> float:
        """Correlation of what two values do."""
        if one == other:
            return 1.0
        sizes = [self.sizes[number] if self.sizes else None for number in (one, other)]
        if sizes[0] is None or sizes[1] is None:
            return 0.0
        return float(np.exp(-0.5 * ((sizes[0] - sizes[1]) / LENGTH_SCALE) ** 2))


@dataclass(frozen=True)
class Measured:
    """Measured arms [N] with the log times and their variances."""

    points: Sequence[Point]
    values: np.ndarray
    variances: np.ndarray


def predict(
    factors: Sequence[Factor], measured: Measured, candidates: Sequence[Point]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation [W] of the log times of the arms `candidates`."""
    # The prior has mean zero: without centring, all that is not measured would be drawn to the baseline.
    centre = float(np.mean(measured.values))
    between = _covariance(factors, measured.points, measured.points) + np.diag(measured.variances)
    across = _covariance(factors, candidates, measured.points)
    solved = np.linalg.solve(between, np.column_stack([measured.values - centre, across.T]))
    # Posterior of a Gaussian process: K* K^-1 y, and the prior variance less what the measured arms explain.
    means = centre + across @ solved[:, 0]
    own = 1 + MAIN_SD**2 * len(factors) + PAIR_SD**2 * math.comb(len(factors), 2) + REST_SD**2
    return means, np.sqrt(np.maximum(own - (across * solved[:, 1:].T).sum(axis=1), 0.0))


def _covariance(factors: Sequence[Factor], rows: Sequence[Point], columns: Sequence[Point]) -> np.ndarray:
    """[R, C] covariance of log times: a common level, main effects, pairwise interactions, the arm itself."""
    ours, theirs = np.array(rows), np.array(columns)
    correlations = [
        factor.correlations()[np.ix_(ours[:, i], theirs[:, i])] for i, factor in enumerate(factors)
    ]
    total = np.ones((len(rows), len(columns)))
    for i, one in enumerate(correlations):
        total += MAIN_SD**2 * one
        for other in correlations[:i]:
            total += PAIR_SD**2 * one * other
    return total + REST_SD**2 * (ours[:, None, :] == theirs[None, :, :]).all(axis=2)
