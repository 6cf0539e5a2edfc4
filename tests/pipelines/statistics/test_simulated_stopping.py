"""Arms that stop by themselves, and intervals that may be looked at after every value: both simulated.

The table with many more sweeps: tests/benchmarks/table_statistics.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from machines import Stopped, claims_falsely, generations, held_by, measured_until

from perfsweep.pipelines.statistics import estimates
from perfsweep.pipelines.statistics.estimates import (
    PRIOR,
    Method,
    sequence_estimate,
    sequence_half_width,
    sequence_p,
)
from perfsweep.pipelines.store import stop_rule

PLANTED = [0.0, 0.0, 0.0, -0.03, 0.2]
MARGIN = 0.004


@pytest.fixture(scope="module")
def times() -> list[np.ndarray]:
    """Sweeps whose second arm is three times as noisy as the others."""
    rng = np.random.default_rng(3)
    return [generations(rng, PLANTED, 14, loud={2: 3.0}) for _ in range(40)]


def rates(sweeps: list[Stopped]) -> tuple[float, float]:
    """Share of intervals that hold what was planted, and of sweeps with a false claim."""
    held = np.mean([held_by(one.decisions, PLANTED) for one in sweeps])
    return float(held), float(np.mean([claims_falsely(one.decisions, PLANTED) for one in sweeps]))


def test_arms_that_stop_by_themselves_keep_coverage_and_claim_nothing_false(times: list[np.ndarray]) -> None:
    sweeps = [measured_until(one, 0.02, MARGIN) for one in times]
    held, false = rates(sweeps)
    assert 0.92 <= held <= 0.98
    assert false <= 0.07
    rounds = np.mean([one.rounds for one in sweeps], axis=0)
    assert rounds[2] > 12 > 8 > rounds[1], "the noisy arm goes on, and not the others"


def test_mutant_a_plug_in_sequence_from_two_rounds_on_does_not(
    times: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sequence_half_width(error: float, n: int, level: float) -> float:
        """Robbins' mixture for a known variance, with the estimated one in its place."""
        r = estimates.PRIOR
        return error * math.sqrt((n + r) / n * math.log((n + r) / (r * (1 - level) ** 2)))

    monkeypatch.setattr(estimates, "sequence_half_width", sequence_half_width)
    monkeypatch.setattr(stop_rule, "LEAST_TO_STOP", 2)
    held, _ = rates([measured_until(one, 0.02, MARGIN) for one in times[:20]])
    assert held < 0.9


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
    assert ever(sequence_p, draws) <= 0.06
    assert ever(plug_in_p, draws) > 0.15, "mutant: a variance that is put in for the true one"


@pytest.mark.parametrize("n", [3, 6, 40])
@pytest.mark.parametrize("level", [0.95, 1 - 0.05 / 12])
def test_the_interval_holds_zero_as_long_as_p_is_above_its_level(n: int, level: float) -> None:
    half = sequence_half_width(1.0, n, level)
    if math.isinf(half):
        assert sequence_p(1e9, 1.0, n) > 1 - level, "nothing is ruled out yet"
    else:
        assert sequence_p(half * 1.001, 1.0, n) < 1 - level < sequence_p(half * 0.999, 1.0, n)


def test_p_is_one_where_nothing_differs_and_small_where_all_agree() -> None:
    assert sequence_p(0.0, 0.0, 6) == 1.0 == sequence_p(0.0, 1.0, 6)
    assert sequence_p(0.1, 0.0, 6) < 1e-3


def test_an_estimate_by_a_sequence_reads_all_of_its_intervals_from_it() -> None:
    values = np.array([0.2, 0.21, 0.19, 0.2, 0.22, 0.18])
    found = sequence_estimate(values, rounds=12)
    assert (found.method, found.n, found.rounds) == (Method.SEQUENCE, 6, 12)
    assert found.interval == found.at(0.95)
    strict = found.at(0.99)
    assert strict and found.interval and strict.half_width > found.interval.half_width
    assert found.log_ratio == pytest.approx(values.mean())
