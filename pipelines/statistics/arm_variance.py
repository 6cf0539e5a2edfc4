"""The variance of an arm's mean: pooled over all arms, but a noisy arm keeps its own.

A sweep has few servers, so one arm alone estimates its variance badly: with five servers there are four
degrees of freedom, and intervals are 1.5 times as wide. All arms together estimate it well. Pooling is right
as long as arms scatter alike. Arms that scatter differently are found by F tests on the many cells instead of
the few servers. Smyth's moderation (2004) draws every arm's variance towards that of the others. It was tried
and left out: it lost power, and its intervals of noisy arms covered the true value too seldom.

Log times are fitted as arm + round so that a spike moves neither: iteratively reweighted least squares with
Tukey's bisquare, which forgets a trial that took half as long again, where Huber's weights only bound its
pull. What is handed on are *pseudo-values* (Huber and Ronchetti, Robust Statistics, 2009, section 7.6):
numbers that scatter as the estimate does, so that whatever follows may take plain means and mean squares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

NOISY = 0.02
"""An arm whose F test has a smaller p keeps its own variance."""
_LEAST_SHARE = 0.05  # of the mean variance: subtracting what others left in an arm's residuals may reach zero
_LEAST_TO_TELL = 3  # arms of a round, on average, to tell an arm's variance from that of the others
_LEAST_WIDE = 6  # rounds of three arms or more; with fewer, rounds of two arms count too
_LEAST_DRAWS = 3  # replications of these rounds: all arms but two may have left within one server


@dataclass(frozen=True)
class PackTable:
    """Pseudo-values [arms, rounds] of a pack, nan where missing, and each round's replication (0, 1, ...)."""

    pack: str
    arms: tuple[str, ...]
    values: np.ndarray
    replication: np.ndarray

    def means(self) -> np.ndarray:
        """[arms, replications] mean of each arm over the rounds of a server (or other replication)."""
        member = np.eye(self.replication.max() + 1)[self.replication]
        return _divided(np.nan_to_num(self.values) @ member, self.rounds(), np.nan)

    def rounds(self) -> np.ndarray:
        """[arms, replications] rounds of each arm."""
        return np.isfinite(self.values) @ np.eye(self.replication.max() + 1)[self.replication]


class Level(NamedTuple):
    """Mean squares of units at one level of replication.

    A unit is an arm of a pack, or a pack of two arms, whose residuals mirror one another. `degrees` are those
    of its own mean square, `shares` its part of the table's, which are fewer since rounds were fitted.
    """

    squares: np.ndarray
    degrees: np.ndarray
    shares: np.ndarray

    def noisy(self) -> np.ndarray:
        """Which units scatter more than the others, searched again without the units already found."""
        from scipy.special import fdtrc  # late: scipy takes long to import on a busy host

        out = np.zeros(len(self.squares), bool)
        for _ in range(3):
            kept = np.where(out, 0.0, self.shares)
            rest = kept.sum() - kept
            others = _divided((kept * self.squares).sum() - kept * self.squares, rest)
            told = (rest > 0) & (self.degrees > 0) & (self.squares > others)
            ratio = _divided(self.squares, others, np.inf)
            out = told & (fdtrc(np.maximum(self.degrees, 1), np.maximum(rest, 1e-9), ratio) < NOISY)
        return out

    def pooled(self, units: np.ndarray) -> tuple[float, float]:
        """Mean square over some of the units, and its degrees of freedom."""
        degrees = float(self.shares[units].sum())
        return (float((self.shares * self.squares)[units].sum()) / degrees if degrees else 0.0), degrees


@dataclass(frozen=True)
class Layout:
    """How much of a server mean's variance stays from round to round of the server: addresses, hash seed.

    `noise` is the variance of one log time within a server, `layout` what each server adds; `f` and `p` test
    that it adds nothing.
    """

    noise: float
    layout: float
    f: float
    p: float

    @property
    def share(self) -> float:
        """Part of one log time's variance that is layout."""
        return self.layout / (self.layout + self.noise) if self.layout else 0.0

    def __str__(self) -> str:
        return f"process and layout: {self.share:.0%} of the variance (F {self.f:.1f}, p {self.p:.2g})"


class ArmVariances:
    """Variances of arms' replication means, over the packs of a sweep."""

    def __init__(self, packs: Sequence[PackTable]) -> None:
        self._units: dict[tuple[str, str], int] = {}
        levels: list[tuple[Level, Level, Level]] = []
        rounds = [np.zeros(0)]
        for pack in map(_wide, packs):
            start = sum(len(cells.squares) for cells, _, _ in levels)
            levels.append(_levels(pack))
            pairs = len(levels[-1][0].squares) == 1
            for place, arm in enumerate(pack.arms):
                self._units[pack.pack, arm] = start + (0 if pairs else place)
            rounds.append(_rounds(pack, pairs))
        self._cells, self._between, self._within = (_joined([one[i] for one in levels]) for i in range(3))
        inner = self._within if self._within.shares.any() else self._cells
        # Only scatter *within* servers, which says nothing of a server's own draw, may take arms out of the
        # pool: without those whose servers happened to lie far apart it would be too small.
        kept = ~inner.noisy()
        self._noisy = self._cells.noisy()
        self.variance, self.degrees = self._between.pooled(kept)
        self.noise, self._noise_degrees = inner.pooled(kept)
        self._rounds = np.concatenate(rounds)

    def beyond(self, pair_sd: float) -> bool:
        """Whether pairs scatter more than that, chance excepted: the lower 95 % bound lies above it."""
        from scipy.special import chdtri

        if not (self._noise_degrees and self.noise):
            return False
        highest = float(chdtri(self._noise_degrees, 0.05))
        return 2 * self.noise * self._noise_degrees / highest > pair_sd**2

    def layout(self) -> Layout | None:
        """Tell layout from noise; None where servers have one round each, or there is one server."""
        from scipy.special import fdtrc

        if not (self._within.shares.any() and self.degrees and self.noise):
            return None
        f = self.variance * float(self._rounds.mean()) / self.noise
        p = float(fdtrc(self.degrees, self._noise_degrees, f))
        return Layout(self.noise, self._layout(), f, p)

    def _layout(self) -> float:
        return max(0.0, self.variance - self.noise / float(self._rounds.mean()))

    def of_sum(self, coefficients: Mapping[tuple[str, str], float]) -> tuple[float, float]:
        """Variance of a sum of replication means with these squared weights, and degrees (Satterthwaite)."""
        own, degrees = self._own(), self._cells.degrees
        pooled, sums = 0.0, np.zeros(len(own))
        for key, coefficient in coefficients.items():
            unit = self._units[key]
            if self._noisy[unit]:
                sums[unit] += coefficient * own[unit]
            else:
                pooled += coefficient * self.variance
        variance = pooled + float(sums.sum())
        spread = _ratio(pooled**2, self.degrees) + float(_divided(sums**2, degrees).sum())
        return variance, (variance**2 / spread if spread else self.degrees)

    def _own(self) -> np.ndarray:
        """Variance of each unit's replication mean by its own cells: as if all were of servers of their own.

        Cells of one server share its draw, so that they scatter too little by the part of the layout which
        stays within servers; that is pooled, and added.
        """
        shared = 1 - _divided(self._between.degrees, self._cells.degrees)
        by_cells = self._cells.squares / self._rounds + shared * self._layout()
        return np.maximum(by_cells, self._between.squares)


def _levels(pack: PackTable) -> tuple[Level, Level, Level]:
    """Mean squares of cells, of replication means, and of cells within replications.

    They have the same units: servers last differently long, so that where arms have left, these may have been
    together in most servers, and in few rounds.
    """
    means = pack.means()
    inside = pack.values - means[:, pack.replication]
    counts, ones = np.isfinite(means).sum(axis=1), np.ones(len(means))
    tables = ((_centred(pack.values), ones), (_centred(means), ones), (inside, counts))
    mirrored = min(_widths(deviations).mean() for deviations, _ in tables) < _LEAST_TO_TELL
    cells, between, within = (_mean_squares(*table, mirrored) for table in tables)
    return cells, between, within


def _rounds(pack: PackTable, pairs: bool) -> np.ndarray:
    """Rounds of a replication, for each unit: the harmonic mean, as noise in a mean falls with its rounds."""
    rounds = pack.rounds()
    rounds = _divided((rounds > 0).sum(axis=1), _divided(1.0, rounds).sum(axis=1), 1.0)
    return rounds.mean(keepdims=True) if pairs else rounds


def _widths(values: np.ndarray) -> np.ndarray:
    """Arms of each column; of one without any, one."""
    return np.maximum(np.isfinite(values).sum(axis=0), 1)


def _wide(pack: PackTable) -> PackTable:
    """The rounds of three arms or more, where these are enough to tell variances by.

    If only two arms are left, the residuals of the two mirror one another: a noisy arm would add its variance
    to the baseline, and so to all arms that are compared with it.
    """
    wide = np.isfinite(pack.values).sum(axis=0) > 2
    draws, replication = np.unique(pack.replication[wide], return_inverse=True)
    if wide.sum() < _LEAST_WIDE or len(draws) < _LEAST_DRAWS:
        return pack
    return PackTable(pack.pack, pack.arms, pack.values[:, wide], replication)


def _mean_squares(deviations: np.ndarray, lost: np.ndarray, mirrored: bool) -> Level:
    """Mean squares of [arms, columns], of which each arm lost some degrees of freedom to its means.

    Round effects were fitted too: in a round of w arms, an arm keeps (1 - 1/w)^2 of its own variance in its
    residual and takes 1/w^2 of each other's on, which is solved for (method of moments). Of two arms, whose
    residuals are `mirrored`, only their sum is told.
    """
    there = np.isfinite(deviations).astype(float)
    width, cells = _widths(deviations), there.sum(axis=1)
    sums = np.nansum(deviations**2, axis=1)
    degrees = np.maximum(cells - lost, 0)
    shares = degrees * (1 - _divided(there @ (1 / width), cells))
    pooled = _ratio(float(sums.sum()), float(shares.sum()))
    if mirrored:
        return Level(*(np.array([value]) for value in (pooled, shares.sum(), shares.sum())))
    expected = (there / width**2) @ there.T + np.diag(there @ (1 - 2 / width))
    own = np.linalg.lstsq(_divided(degrees, cells)[:, None] * expected, sums, rcond=None)[0]
    return Level(np.maximum(own, _LEAST_SHARE * pooled), degrees, shares)


def _joined(levels: Sequence[Level]) -> Level:
    return Level(*np.concatenate([np.zeros((3, 0)), *map(np.array, levels)], axis=1))


def _centred(values: np.ndarray) -> np.ndarray:
    return values - _divided(np.nansum(values, axis=1), np.isfinite(values).sum(axis=1))[:, None]


def _divided(above: ArrayLike, below: ArrayLike, otherwise: float = 0.0) -> np.ndarray:
    """above / below, where it is something."""
    above, below = np.broadcast_arrays(np.asarray(above, float), np.asarray(below, float))
    return np.divide(above, below, out=np.full(above.shape, otherwise), where=below > 0)


def _ratio(above: float, below: float) -> float:
    return above / below if below else 0.0


TUNING = 10.0
"""Residuals beyond so many scales count for nothing; at ten, normal noise loses under 1 % of efficiency."""
STEPS = 20
LEAST_DEGREES = 4
"""Residual degrees of freedom below which nothing can be told to be a spike: least squares."""
_NORMAL_MAD = 1.4826  # times the median absolute deviation of normal values is their standard deviation


def pseudo_values(log_values: np.ndarray) -> np.ndarray:
    """Take the rounds out of [arms, rounds] log values: what each cell says of its arm; nan stays nan.

    An arm's mean is its robust level up to a constant of the table, so only differences between arms mean
    something.
    """
    there = np.isfinite(log_values)
    values = np.where(there, log_values, 0.0)
    levels, residuals = _additive(values, there.astype(float))
    degrees = there.sum() - sum(there.shape) + 1
    if degrees >= LEAST_DEGREES:
        loss = math.sqrt(there.sum() / degrees)  # fitted residuals are smaller than the noise
        levels, residuals = _bisquare(values, there, _polished(log_values), loss)
    # Equal figures part in the last bits of a float, which no clock measures.
    return np.where(there, np.round(levels[:, None] + residuals, 12), np.nan)


def _additive(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Arm levels and residuals of the weighted least squares fit of [arms, rounds]."""
    columns = weights.sum(axis=0)
    means = (weights * values).sum(axis=0) / columns
    normal = np.diag(weights.sum(axis=1)) - (weights / columns) @ weights.T
    # The rounds are eliminated; that leaves one free constant, and lstsq takes the smallest levels.
    levels = np.linalg.lstsq(normal, (weights * (values - means)).sum(axis=1), rcond=None)[0]
    apart = values - levels[:, None]
    return levels, apart - (weights * apart).sum(axis=0) / columns


def _polished(log_values: np.ndarray) -> np.ndarray:
    """Residuals after Tukey's median polish: a start that spikes have not spoilt."""
    residuals = log_values
    for _ in range(3):
        residuals = residuals - _medians(residuals)
        residuals = residuals - _medians(residuals.T).T
    return residuals


def _medians(values: np.ndarray) -> np.ndarray:
    """[rows, 1] median of each row without its nan: numpy's own takes ten times as long on small tables."""
    ordered, count = np.sort(values, axis=1), np.isfinite(values).sum(axis=1, keepdims=True)  # nan come last
    middle = [np.take_along_axis(ordered, place, axis=1) for place in ((count - 1) // 2, count // 2)]
    return (middle[0] + middle[1]) / 2


def _bisquare(
    values: np.ndarray, there: np.ndarray, start: np.ndarray, loss: float
) -> tuple[np.ndarray, np.ndarray]:
    """Arm levels and pseudo-residuals; the plain fit where more than half of the cells agree exactly."""
    levels, residuals = _additive(values, there.astype(float))
    scales = _scales(start, there, loss)
    if not scales.all():
        return levels, residuals
    current = np.where(there, start, 0.0)
    for _ in range(STEPS):
        inside = np.clip(1 - (current / scales / TUNING) ** 2, 1e-3, None)
        before, (levels, current) = levels, _additive(values, there * inside**2)
        if np.ptp(levels - before) < 1e-4 * scales.min():
            break
        scales = _scales(np.where(there, current, np.nan), there, loss)
    return levels, scales * _pseudo_residuals(current / scales, there)


def _scales(residuals: np.ndarray, there: np.ndarray, loss: float) -> np.ndarray:
    """[arms, 1] scale of each arm's noise: the table's, or its own where that is larger."""
    off = np.abs(residuals)
    own = _medians(off)
    return _NORMAL_MAD * loss * np.maximum(own, np.median(off[there]))


def _pseudo_residuals(u: np.ndarray, there: np.ndarray) -> np.ndarray:
    """psi(u) / mean psi'(u), widened for the arms and rounds that were fitted (Huber's correction)."""
    square = (u / TUNING) ** 2
    psi = np.where(square < 1, u * (1 - square) ** 2, 0.0)
    slopes = np.where(square < 1, (1 - square) * (1 - 5 * square), 0.0)[there]
    fitted = (sum(there.shape) - 1) / there.sum()
    slope = max(float(slopes.mean()), 0.5)
    return psi * (1 + fitted * slopes.var() / slope**2) / slope
