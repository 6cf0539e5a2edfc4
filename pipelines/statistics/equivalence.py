"""Whether two versions of a stochastic computation are equivalent: two one-sided tests on paired seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_LEAST_SEEDS = 3  # two leave one degree of freedom and an interval of 12.7 standard errors


@dataclass(frozen=True)
class Equivalence:
    """The mean of paired differences with its 90 % interval, against a margin.

    `equivalent` is True with the interval inside the margin, False with it wholly beyond, None between.
    """

    equivalent: bool | None
    mean: float
    low: float
    high: float
    margin: float
    seeds: int
    seeds_needed: int


def tost(differences: Sequence[float], margin: float) -> Equivalence:
    """Two one-sided tests at 5 % each (Schuirmann 1987) on one difference for each pair of seeds.

    Not showing a difference is no evidence of none, so small samples are undecided, not equivalent.
    `seeds_needed` = ((1.65 + 1.28) sd / margin)^2 + 2 pairs show equality with power 0.9. A difference that
    is not finite decides nothing.
    """
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2 or not np.isfinite(values).all():
        mean = float(values.mean()) if len(values) else math.nan
        return Equivalence(None, mean, -math.inf, math.inf, margin, len(values), _LEAST_SEEDS)
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    half = _t_quantile(len(values) - 1) * deviation / math.sqrt(len(values))
    low, high = mean - half, mean + half
    needed = max(_LEAST_SEEDS, math.ceil(((1.65 + 1.28) * deviation / margin) ** 2 + 2))
    return Equivalence(_inside(low, high, margin), mean, low, high, margin, len(values), needed)


def _inside(low: float, high: float, margin: float) -> bool | None:
    if -margin < low and high < margin:
        return True
    return False if low > margin or high < -margin else None


def _t_quantile(freedom: int) -> float:
    """95 % quantile of Student's t."""
    from scipy.special import stdtrit  # late: only sweeps with stochastic levels need it

    return float(stdtrit(freedom, 0.95))
