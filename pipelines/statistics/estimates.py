"""Estimates and intervals of paired comparisons.

Everything here works on log ratios d = log(time of the arm / time of its base), one for each round (or, for
processes that stay, one for each process generation): natural logarithms, negative is faster, -0.10 is 9.5 %
less time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95
ALPHA = 1 - LEVEL

HL_ERROR_FACTOR = 1.023
"""Standard error of the Hodges-Lehmann estimate over that of the mean on normal data: sqrt(pi / 3)."""


class Method(StrEnum):
    """Where an interval comes from."""

    SIGNED_RANK = "signed rank"
    POOLED = "pooled variance"
    OWN_VARIANCE = "t"
    NONE = "none"


@dataclass(frozen=True)
class Interval:
    """Bounds of a log ratio, and the confidence they were made for."""

    low: float
    high: float
    level: float = LEVEL

    @property
    def half_width(self) -> float:
        """Half the distance of the bounds."""
        return (self.high - self.low) / 2

    @property
    def ratios(self) -> tuple[float, float]:
        """Bounds of time of the arm / time of the base: 0.5 is half the time."""
        return math.exp(self.low), math.exp(self.high)

    @property
    def speed(self) -> tuple[float, float]:
        """Bounds of the speed ratio, time of the base / time of the arm: 2.0 is twice as fast."""
        return math.exp(-self.high), math.exp(-self.low)


@dataclass(frozen=True)
class PooledVariance:
    """Variance of one log time within a round, pooled over arms, and its degrees of freedom."""

    mean_square: float
    degrees: int


@dataclass(frozen=True)
class Estimate:
    """An effect with its uncertainty: never a bare number.

    Attributes
    ----------
    log_ratio : Hodges-Lehmann estimate; nan without a pair
    interval, p : at the plain level, and two-sided against no effect; None where too little was measured
    n : pairs used
    reason : in words, why there is no interval
    """

    log_ratio: float
    interval: Interval | None
    p: float | None
    method: Method
    n: int
    reason: str = ""
    log_ratios: tuple[float, ...] = ()
    variance: PooledVariance | None = None

    def at(self, level: float) -> Interval | None:
        """The interval at another level, by the same method; None where the level cannot be reached."""
        if self.method is Method.SIGNED_RANK:
            return signed_rank_interval(self.log_ratios, level)
        if self.variance is None:
            return None
        error = _standard_error(self.variance, self.n)
        return _student_interval(self.log_ratio, error, self.variance.degrees, level)


def hodges_lehmann(d: ArrayLike) -> float:
    """Median of the pairwise means of d [n] (Hodges and Lehmann 1963); nan of nothing."""
    values = _finite(d)
    return float(np.median(_walsh(values))) if len(values) else math.nan


def signed_rank_interval(d: ArrayLike, level: float = LEVEL) -> Interval | None:
    """Interval of the Hodges-Lehmann estimate by the exact signed rank distribution; None if n is small."""
    values = _finite(d)
    k = signed_rank_order(len(values), level)
    if k == 0:
        return None
    # The test rejects a shift m when few Walsh means lie on one side of m: inverted, its bounds are the k-th
    # Walsh means from either end (Hollander and Wolfe, Nonparametric Statistical Methods, section 3.3).
    walsh = _walsh(values)
    return Interval(float(walsh[k - 1]), float(walsh[-k]), level)


def signed_rank_order(n: int, level: float = LEVEL) -> int:
    """Which sorted Walsh means, counted from either end, bound n pairs' interval; 0 if n is too small."""
    return int(np.searchsorted(np.cumsum(_signed_rank_distribution(n)), _tail(level), side="right"))


def signed_rank_p(d: ArrayLike) -> float:
    """Exact two-sided p of no effect: at most alpha just when the 1 - alpha interval excludes zero."""
    values = _finite(d)
    walsh = _walsh(values)
    # The signed rank sum is the number of Walsh means on one side of zero; those at zero count for both
    # sides, so that ties never make an effect look surer.
    rarer = min(np.count_nonzero(walsh <= 0), np.count_nonzero(walsh >= 0))
    return min(1.0, 2 * float(np.sum(_signed_rank_distribution(len(values))[: rarer + 1])))


def signed_rank_decides(n: int, comparisons: int = 1) -> bool:
    """Whether n pairs that all agree are enough for the smallest of `comparisons` p values under Holm."""
    # Of the 2^n sign patterns two have all signs alike, so no p is below 2 / 2^n.
    return n > 0 and 2.0 ** (1 - n) <= ALPHA / comparisons


def pooled_variance(*packs: ArrayLike) -> PooledVariance | None:
    """Residual mean square of log times [arms, rounds] after arm and round means, pooled over packs.

    A pack holds its base as one of its arms. None when no degree of freedom remains. The mean square is used
    as it is: clipped residuals and their median deviation cover less than they say (.88 and .75 for .95 with
    spikes).
    """
    tables = [np.asarray(pack, float) for pack in packs]
    degrees = sum((table.shape[0] - 1) * (table.shape[1] - 1) for table in tables if table.size)
    return None if degrees == 0 else PooledVariance(sum(map(_residual_squares, tables)) / degrees, degrees)


def estimate_effect(d: ArrayLike, comparisons: int = 1, variance: PooledVariance | None = None) -> Estimate:
    """Estimate one comparison among `comparisons` of a sweep from its log ratios d [n].

    The exact signed rank wherever it can decide under Holm; else the variance pooled over the arms of the
    sweep; else that of the pairs themselves. One round never has an interval.

    Parameters
    ----------
    d : one log ratio per round, or per process generation
    comparisons : effects of the sweep, this one included
    variance : from `pooled_variance`, with rounds (or generations) as its rounds
    """
    values = _finite(d)
    n = len(values)
    point = Estimate(hodges_lehmann(values), None, None, Method.NONE, n, log_ratios=tuple(values.tolist()))
    if n == 0:
        return replace(point, reason="no round measured both the arm and its base")
    if n == 1:
        return replace(point, reason="one round has no interval; measure at least two")
    if signed_rank_decides(n, comparisons):
        found = replace(point, method=Method.SIGNED_RANK, p=signed_rank_p(values))
    else:
        found = _by_variance(point, variance)
    return replace(found, interval=found.at(LEVEL))


def _by_variance(point: Estimate, variance: PooledVariance | None) -> Estimate:
    method = Method.POOLED if variance else Method.OWN_VARIANCE
    # Of two arms alone the residual mean square is half the variance of their differences.
    variance = variance or PooledVariance(float(np.var(point.log_ratios, ddof=1)) / 2, point.n - 1)
    p = _student_p(point.log_ratio, _standard_error(variance, point.n), variance.degrees)
    return replace(point, method=method, variance=variance, p=p)


@dataclass(frozen=True)
class HolmStep:
    """One p value in Holm's step-down procedure.

    Attributes
    ----------
    level : confidence at which the interval of this comparison is read
    rejected : whether no effect is rejected, which needs all smaller p to be rejected too
    """

    level: float
    rejected: bool


def holm(ps: Sequence[float | None], alpha: float = ALPHA) -> list[HolmStep]:
    """Holm's procedure (1979) over all comparisons of a sweep, in given order; None is one without a p."""
    values = [1.0 if p is None else p for p in ps]
    steps: dict[int, HolmStep] = {}
    rejecting = True
    for done, index in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        # Where the smallest k are true effects only m - k nulls are left to guard against: no power is lost.
        share = alpha / (len(values) - done)
        rejecting = rejecting and values[index] <= share
        steps[index] = HolmStep(1 - share, rejecting)
    return [steps[index] for index in range(len(values))]


def rounds_to_decide(estimate: Estimate, margin: float) -> int | None:
    """Rounds until the interval clears the margin's nearer edge: n (half-width / distance)^2.

    None where no number of rounds would: no interval yet, or an estimate on the edge itself.
    """
    distance = abs(abs(estimate.log_ratio) - margin)
    if estimate.interval is None or distance == 0:
        return None
    # A half-width shrinks with the square root of the rounds.
    return max(estimate.n + 1, math.ceil(estimate.n * (estimate.interval.half_width / distance) ** 2))


def break_even(one_off_arm_s: float, one_off_base_s: float, t_arm_s: float, t_base_s: float) -> float | None:
    """Iterations after which what an arm costs once is repaid by what it saves each time.

    None where nothing is to be repaid: the arm costs no more than its base, or saves nothing.
    """
    cost, saving = one_off_arm_s - one_off_base_s, t_base_s - t_arm_s
    return cost / saving if cost > 0 and saving > 0 else None


def precise_enough(estimate: Estimate, target: float) -> bool:
    """Whether rounds may stop: the half-width, and nothing else, has reached the target.

    Stopping on it costs the 95 % interval at most two points of coverage, where the target is reached only
    after many rounds. Never stop on the verdict or its p: at p < 0.05 two equal arms would differ in 23 % of
    sweeps.
    """
    return estimate.interval is not None and estimate.interval.half_width <= target


def _finite(d: ArrayLike) -> np.ndarray:
    values = np.asarray(d, float)
    if not np.isfinite(values).all():
        raise ValueError("a log ratio is not finite; leave pairs with a missing side out before this")
    return values


def _walsh(values: np.ndarray) -> np.ndarray:
    """Sorted means (d_i + d_j) / 2 of all pairs i <= j."""
    first, second = _pairs(len(values))
    return np.sort((values[first] + values[second]) / 2)


@functools.lru_cache(maxsize=64)
def _pairs(n: int) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.triu_indices(n)
    return first, second


@functools.lru_cache(maxsize=64)
def _signed_rank_distribution(n: int) -> np.ndarray:
    """P(W = w) for w = 0 .. n(n+1)/2: each rank joins the sum or not, with even chances."""
    chances = np.zeros(n * (n + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, n + 1):
        # Halved rank by rank: 2^n patterns counted first would leave the range of floats for many rounds.
        chances[rank:] += chances[:-rank].copy()
        chances /= 2
    return chances


def _tail(level: float) -> float:
    # 1 - 0.95 is a little over 0.05 in floating point, others are under; a tail of 2^-n must still count.
    return (1 - level) / 2 * (1 + 1e-12)


def _residual_squares(log_times: np.ndarray) -> float:
    """Sum of squares of [arms, rounds] less its arm and round means."""
    if not log_times.size:
        return 0.0
    # Round means take the machine's drift out, arm means the effects: what is left is noise.
    fitted = log_times.mean(axis=1, keepdims=True) + log_times.mean(axis=0) - log_times.mean()
    return float(np.sum((log_times - fitted) ** 2))


def _standard_error(variance: PooledVariance, n: int) -> float:
    # A log ratio is a difference of two log times: twice the variance of one.
    return HL_ERROR_FACTOR * math.sqrt(2 * variance.mean_square / n)


def _student_interval(centre: float, error: float, degrees: int, level: float) -> Interval:
    from scipy.special import stdtrit  # scipy.stats takes seconds to import on a busy host

    half = float(stdtrit(degrees, (1 + level) / 2)) * error
    return Interval(centre - half, centre + half, level)


def _student_p(centre: float, error: float, degrees: int) -> float:
    from scipy.special import stdtr

    if error == 0:
        return 1.0 if centre == 0 else 0.0
    return 2 * float(stdtr(degrees, -abs(centre) / error))
