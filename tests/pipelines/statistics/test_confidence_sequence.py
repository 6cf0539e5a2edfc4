"""Intervals that may be looked at after every value: what they promise, and that a plug-in does not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from perfsweep.pipelines.statistics.confidence_sequence import PRIOR, half_width, p_value
from perfsweep.pipelines.statistics.estimates import Method, sequence_estimate


def plug_in_p(mean: float, error: float, n: int) -> float:
    """Robbins' mixture for a known variance, with the estimated one in its place."""
    exponent = min(700.0, (mean / error) ** 2 * n / (n + PRIOR) / 2)
    return min(1.0, math.sqrt((n + PRIOR) / PRIOR) * math.exp(-exponent))


def ever(p: Callable[[float, float, int], float], draws: np.ndarray) -> float:
    """Share of rows [sweeps, values] of mean zero in which p is ever below .05, from the second value on."""
    n = np.arange(1, draws.shape[1] + 1)
    mean = draws.cumsum(axis=1) / n
    error = np.sqrt(((draws**2).cumsum(axis=1) - n * mean**2) / np.maximum(n - 1, 1) / n)
    looks = range(1, draws.shape[1])
    return float(
        np.mean([any(p(m[i], e[i], i + 1) <= 0.05 for i in looks) for m, e in zip(mean, error, strict=True)])
    )


@pytest.mark.parametrize("degrees", [5, 10**6])
def test_looking_after_every_value_finds_no_more_than_was_promised(degrees: int) -> None:
    draws = np.random.default_rng(0).standard_t(degrees, (400, 30))
    assert ever(p_value, draws) <= 0.06
    assert ever(plug_in_p, draws) > 0.15, "mutant: a variance that is put in for the true one"


@pytest.mark.parametrize("n", [3, 6, 40])
@pytest.mark.parametrize("level", [0.95, 1 - 0.05 / 12])
def test_the_interval_holds_zero_as_long_as_p_is_above_its_level(n: int, level: float) -> None:
    half = half_width(1.0, n, level)
    if math.isinf(half):
        assert p_value(1e9, 1.0, n) > 1 - level, "nothing is ruled out yet"
    else:
        assert p_value(half * 1.001, 1.0, n) < 1 - level < p_value(half * 0.999, 1.0, n)


def test_p_is_one_where_nothing_differs_and_small_where_all_agree() -> None:
    assert p_value(0.0, 0.0, 6) == 1.0 == p_value(0.0, 1.0, 6)
    assert p_value(0.1, 0.0, 6) < 1e-3


def test_an_estimate_by_a_sequence_reads_all_of_its_intervals_from_it() -> None:
    values = np.array([0.2, 0.21, 0.19, 0.2, 0.22, 0.18])
    found = sequence_estimate(values, rounds=12)
    assert (found.method, found.n, found.rounds) == (Method.SEQUENCE, 6, 12)
    assert found.interval == found.at(0.95)
    strict = found.at(0.99)
    assert strict and found.interval and strict.half_width > found.interval.half_width
    assert found.log_ratio == pytest.approx(values.mean())
