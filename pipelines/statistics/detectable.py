"""The smallest effect that a number of rounds finds with 80 % power."""

from __future__ import annotations

import functools
import math

import numpy as np

from pipelines.statistics.estimates import ALPHA, HL_ERROR_FACTOR, signed_rank_decides, signed_rank_order

POWER = 0.8

_SAMPLES = 4000
"""Simulated sweeps; the standard error of the effect is about one per cent of it."""


def detectable_effect(n: int, pair_sd: float, comparisons: int = 1, degrees: int | None = None) -> float:
    """Log ratio that n rounds find with 80 % power, when one pair has the standard deviation `pair_sd`.

    With several comparisons it is the effect that Holm finds first. Where the signed rank cannot decide,
    `degrees` of freedom of a pooled variance may; without them nothing is detectable and the effect is
    infinite.
    """
    alpha = ALPHA / comparisons
    if signed_rank_decides(n, comparisons):
        return pair_sd * _signed_rank_sd(n, signed_rank_order(n, 1 - alpha))
    if not degrees or n < 2:
        return math.inf
    from scipy.special import stdtrit

    # The interval must clear zero, and 80 % of estimates must lie that far out: two quantiles add up.
    quantiles = stdtrit(degrees, 1 - alpha / 2) + stdtrit(degrees, POWER)
    return pair_sd * HL_ERROR_FACTOR / math.sqrt(n) * float(quantiles)


@functools.lru_cache(maxsize=256)
def _signed_rank_sd(n: int, k: int) -> float:
    """Shift of n normal pairs of unit spread that puts the k-th smallest Walsh mean above 0 in 80 % of cases.

    A shift moves every Walsh mean by itself, so one set of samples answers for all shifts. Normal
    approximations are wrong where it matters: with 8 rounds and 6 comparisons all pairs must agree, and the
    effect is half as large again.
    """
    beyond = 100  # from here on only the error shrinks
    if n > beyond:
        return _signed_rank_sd(beyond, _order_like(n, k, beyond)) * math.sqrt(beyond / n)
    samples = np.random.default_rng(0).standard_normal((_SAMPLES if n <= 40 else _SAMPLES // 8, n))
    first, second = np.triu_indices(n)
    walsh = (samples[:, first] + samples[:, second]) / 2
    # Shifted by s the k-th Walsh mean is above zero where it was above -s: the effect is a quantile of -it.
    return float(np.quantile(-np.partition(walsh, k - 1, axis=1)[:, k - 1], POWER))


def _order_like(n: int, k: int, other: int) -> int:
    """The order that leaves the same standard score below it in another number of pairs."""

    def moments(pairs: int) -> tuple[float, float]:
        return pairs * (pairs + 1) / 4, math.sqrt(pairs * (pairs + 1) * (2 * pairs + 1) / 24)

    mean, deviation = moments(n)
    other_mean, other_deviation = moments(other)
    return max(1, round(other_mean + (k - mean) / deviation * other_deviation))
