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
    def speed(self) -> tuple[float, float]:
        """Bounds of the speed ratio, time of the base / time of the arm: 2.0 is twice as fast."""
        return math.exp(-self.high), math.exp(-self.low)


@dataclass(frozen=True)
class Spread:
    """Variance of one log time within a round, pooled over arms."""

    mean_square: float
    degrees: int


@dataclass(frozen=True)
class LogRatios:
    """Log ratios of the complete pairs, and how many pairs were not."""

    values: np.ndarray
    dropped: int


@dataclass(frozen=True)
class Estimate:
    """An effect with its uncertainty: never a bare number.

    Attributes
    ----------
    log_ratio : Hodges-Lehmann estimate; nan without a complete pair
    interval, p : at the plain level, and two-sided against no effect; None where too little was measured
    n, dropped : pairs used, and pairs left out because one side was missing
    reason : in words, why there is no interval
    """

    log_ratio: float
    interval: Interval | None
    p: float | None
    method: Method
    n: int
    dropped: int = 0
    reason: str = ""
    log_ratios: tuple[float, ...] = ()
    spread: Spread | None = None

    @property
    def speed_ratio(self) -> float:
        """Time of the base / time of the arm."""
        return math.exp(-self.log_ratio)

    def at(self, level: float) -> Interval | None:
        """The interval at another level, by the same method; None where the level cannot be reached."""
        if self.method is Method.SIGNED_RANK:
            return signed_rank_interval(self.log_ratios, level)
        if self.spread is None:
            return None
        return _student_interval(
            self.log_ratio, _ratio_error(self.spread, self.n), self.spread.degrees, level
        )


def log_ratios(arm_times: ArrayLike, base_times: ArrayLike) -> LogRatios:
    """Log ratios of pairs of times [n]; pairs that are not finite are left out and counted.

    Raises
    ------
    ValueError
        The two differ in length, or a time is zero or negative.
    """
    arm, base = np.asarray(arm_times, float), np.asarray(base_times, float)
    if arm.shape != base.shape or arm.ndim != 1:
        raise ValueError(
            f"times must come in pairs, and there are {arm.size} of the arm and {base.size} of its base"
        )
    if (arm <= 0).any() or (base <= 0).any():
        raise ValueError(
            "a time is zero or negative, so its trial did not measure; leave that trial out or repeat it"
        )
    complete = np.isfinite(arm) & np.isfinite(base)
    return LogRatios(np.log(arm[complete] / base[complete]), int(np.sum(~complete)))


def hodges_lehmann(d: ArrayLike) -> float:
    """Median of the pairwise means of d [n] (Hodges and Lehmann 1963); nan of nothing."""
    values = _finite(d)
    return float(np.median(_walsh(values))) if len(values) else math.nan


def generation_ratios(d: ArrayLike, generations: ArrayLike) -> np.ndarray:
    """[G] Hodges-Lehmann estimate of each process generation, from d [n] and the generation [n] of each.

    Pairs of one process share what that process drew (addresses, placement, autotuning), so generations, not
    pairs, are what an interval may count.
    """
    values, labels = np.asarray(d, float), np.asarray(generations)
    return np.array([hodges_lehmann(values[labels == label]) for label in np.unique(labels)])


def signed_rank_interval(d: ArrayLike, level: float = LEVEL) -> Interval | None:
    """Interval of the Hodges-Lehmann estimate from the exact signed rank distribution; None if n is too small
    for it."""
    values = _finite(d)
    k = signed_rank_order(len(values), level)
    if k == 0:
        return None
    walsh = _walsh(values)
    return Interval(float(walsh[k - 1]), float(walsh[-k]), level)


def signed_rank_order(n: int, level: float = LEVEL) -> int:
    """Which of the sorted Walsh means, counted from either end, bound the interval of n pairs; 0 if n is too
    small."""
    lower_tail = np.cumsum(_signed_rank_distribution(n))
    return int(np.searchsorted(lower_tail, _tail(level), side="right"))


def signed_rank_p(d: ArrayLike) -> float:
    """Exact two-sided p of no effect: at most alpha just when the interval at level 1 - alpha excludes
    zero."""
    values = _finite(d)
    walsh = _walsh(values)
    rarer = min(np.count_nonzero(walsh <= 0), np.count_nonzero(walsh >= 0))
    return min(1.0, 2 * float(np.sum(_signed_rank_distribution(len(values))[: rarer + 1])))


def signed_rank_decides(n: int, comparisons: int = 1) -> bool:
    """Whether n pairs that all agree are enough for the smallest of `comparisons` p values under Holm."""
    return n > 0 and 2.0 ** (1 - n) <= ALPHA / comparisons


def t_interval(d: ArrayLike, level: float = LEVEL) -> Interval | None:
    """Student's interval of the mean of d [n]; None below two values."""
    values = _finite(d)
    if len(values) < 2:
        return None
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return _student_interval(float(np.mean(values)), error, len(values) - 1, level)


def residual_spread(*packs: ArrayLike) -> Spread | None:
    """Residual mean square of log times [arms, rounds] after arm and round means, pooled over packs.

    A pack holds its base as one of its arms. Cells that are not finite are missing: the means are then fitted
    by least squares to the others. None when no degree of freedom remains.
    """
    sums, degrees = 0.0, 0
    for pack in packs:
        pack_sum, pack_degrees = _two_way_residuals(np.asarray(pack, float))
        sums, degrees = sums + pack_sum, degrees + pack_degrees
    return Spread(sums / degrees, degrees) if degrees > 0 else None


def pooled_interval(log_times: ArrayLike, arm: int, base: int, level: float = LEVEL) -> Interval | None:
    """Hodges-Lehmann of arm against base +- t times a standard error pooled over all arms of the pack.

    `log_times` is [arms with the base, rounds]; the standard error is 1.023 sqrt(2 s2 / n). The mean square
    is used as it is: clipped residuals and their median deviation cover less than they say (.88 and .75 for
    .95 with spikes).
    """
    spread = residual_spread(log_times)
    return (
        estimate(_differences(log_times, arm, base), spread=spread, rank=False).at(level) if spread else None
    )


def pooled_p(log_times: ArrayLike, arm: int, base: int) -> float | None:
    """Two-sided p of no effect that belongs to `pooled_interval`."""
    spread = residual_spread(log_times)
    return estimate(_differences(log_times, arm, base), spread=spread, rank=False).p if spread else None


def estimate(
    d: ArrayLike, comparisons: int = 1, spread: Spread | None = None, *, rank: bool = True
) -> Estimate:
    """Judge the log ratios d [n] of one comparison among `comparisons` of a sweep.

    The exact signed rank wherever it can decide under Holm; else the variance pooled over the arms of the
    sweep; else that of the pairs themselves. One round never has an interval.

    Parameters
    ----------
    d : one log ratio per round, or per process generation; those that are not finite are left out and counted
    comparisons : effects of the sweep, this one included
    spread : from `residual_spread`, with rounds (or generations) as its rounds
    rank : whether the signed rank may be used
    """
    values = np.asarray(d, float)
    found = Estimate(math.nan, None, None, Method.NONE, 0, int(np.sum(~np.isfinite(values))))
    values = values[np.isfinite(values)]
    n = len(values)
    if n == 0:
        return replace(found, reason="no round measured both the arm and its base")
    found = replace(found, log_ratio=hodges_lehmann(values), n=n, log_ratios=tuple(values.tolist()))
    if n == 1:
        return replace(found, reason="one round has no interval; measure at least two")
    if rank and signed_rank_decides(n, comparisons):
        found = replace(found, method=Method.SIGNED_RANK, p=signed_rank_p(values))
    else:
        method = Method.POOLED if spread else Method.OWN_VARIANCE
        # Of two arms alone the residual mean square is half the variance of their differences.
        spread = spread or Spread(float(np.var(values, ddof=1)) / 2, n - 1)
        p = _student_p(found.log_ratio, _ratio_error(spread, n), spread.degrees)
        found = replace(found, method=method, spread=spread, p=p)
    return replace(found, interval=found.at(LEVEL))


@dataclass(frozen=True)
class HolmStep:
    """One p value in Holm's step-down procedure.

    Attributes
    ----------
    rank : 1 for the smallest p
    level : confidence at which the interval of this rank is read
    adjusted : p adjusted for all comparisons
    rejected : whether no effect is rejected, which needs all smaller p to be rejected too
    """

    rank: int
    level: float
    adjusted: float
    rejected: bool


def holm(ps: Sequence[float | None], alpha: float = ALPHA) -> list[HolmStep]:
    """Holm's procedure (1979) over all comparisons of a sweep, in the order given; None is a comparison
    without a p."""
    values = [1.0 if p is None or math.isnan(p) else p for p in ps]
    count = len(values)
    steps: list[HolmStep | None] = [None] * count
    largest, rejecting = 0.0, True
    for rank, index in enumerate(sorted(range(count), key=lambda i: values[i]), start=1):
        remaining = count - rank + 1
        largest = max(largest, min(1.0, values[index] * remaining))
        rejecting = rejecting and values[index] <= alpha / remaining
        steps[index] = HolmStep(rank, 1 - alpha / remaining, largest, rejecting)
    return [step for step in steps if step is not None]


def rounds_to_decide(found: Estimate, margin: float) -> int | None:
    """Rounds after which the interval would clear the margin's nearer edge, if the estimate stayed: n
    (half-width / distance)^2.

    None where no number of rounds would: no interval yet, or an estimate on the edge itself.
    """
    distance = abs(abs(found.log_ratio) - margin)
    if found.interval is None or distance == 0:
        return None
    return max(found.n + 1, math.ceil(found.n * (found.interval.half_width / distance) ** 2))


def precise_enough(found: Estimate, target: float) -> bool:
    """Whether rounds may stop: the half-width, and nothing else, has reached the target.

    Stopping on it costs the 95 % interval at most two points of coverage, where the target is reached only
    after many rounds. Never stop on the verdict or its p: at p < 0.05 two equal arms would differ in 23 % of
    sweeps.
    """
    return found.interval is not None and found.interval.half_width <= target


def _finite(d: ArrayLike) -> np.ndarray:
    values = np.asarray(d, float)
    if not np.isfinite(values).all():
        raise ValueError(
            "a log ratio is not finite; pairs with a missing side are left out, and counted, before this"
        )
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
        chances[rank:] += chances[:-rank].copy()
        chances /= 2
    return chances


def _tail(level: float) -> float:
    # 1 - 0.95 is a little over 0.05 in floating point, other levels a little under; a tail of 2^-n must still
    # count as reached.
    return (1 - level) / 2 * (1 + 1e-12)


def _two_way_residuals(log_times: np.ndarray) -> tuple[float, int]:
    """Sum of squared residuals of [arms, rounds] and its degrees of freedom."""
    present = np.isfinite(log_times)
    if present.all() and log_times.size:
        residuals = (
            log_times - log_times.mean(axis=1, keepdims=True) - log_times.mean(axis=0) + log_times.mean()
        )
        return float(np.sum(residuals**2)), (log_times.shape[0] - 1) * (log_times.shape[1] - 1)
    arm, round_ = np.nonzero(present)
    if len(arm) == 0:
        return 0.0, 0
    design = np.hstack(
        [arm[:, None] == np.arange(log_times.shape[0]), round_[:, None] == np.arange(log_times.shape[1])]
    )
    observed = log_times[present]
    fitted, _, rank, _ = np.linalg.lstsq(design.astype(float), observed, rcond=None)
    return float(np.sum((observed - design @ fitted) ** 2)), int(len(observed) - rank)


def _differences(log_times: ArrayLike, arm: int, base: int) -> np.ndarray:
    values = np.asarray(log_times, float)
    return values[arm] - values[base]


def _ratio_error(spread: Spread, n: int) -> float:
    return HL_ERROR_FACTOR * math.sqrt(2 * spread.mean_square / n)


def _student_interval(centre: float, error: float, degrees: int, level: float) -> Interval:
    from scipy.special import stdtrit  # scipy.stats takes seconds to import on a busy host

    half = float(stdtrit(degrees, (1 + level) / 2)) * error
    return Interval(centre - half, centre + half, level)


def _student_p(centre: float, error: float, degrees: int) -> float:
    from scipy.special import stdtr

    if error == 0:
        return 1.0 if centre == 0 else 0.0
    return 2 * float(stdtr(degrees, -abs(centre) / error))
