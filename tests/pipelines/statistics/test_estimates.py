"""Intervals, corrections and what is planned from them, against their definitions and against scipy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsweep.pipelines.statistics.estimates import (
    LEVEL,
    Estimate,
    Interval,
    Method,
    break_even,
    detectable_effect,
    holm,
    no_estimate,
    pair_error,
    precise_enough,
    rounds_to_decide,
    student_estimate,
)


@pytest.mark.parametrize("level", [0.8, LEVEL, 0.999])
def test_the_interval_at_any_level_is_students(level: float) -> None:
    from scipy.stats import t

    estimate = student_estimate(0.03, 0.01, 4.5, 5, 10)
    assert estimate.interval == estimate.at(LEVEL)
    interval = estimate.at(level)
    assert interval is not None
    half = t.ppf((1 + level) / 2, 4.5) * 0.01
    assert (interval.low, interval.high) == (pytest.approx(0.03 - half), pytest.approx(0.03 + half))


@pytest.mark.parametrize("level", [0.9, LEVEL, 0.9975])
def test_p_is_where_the_interval_begins_to_exclude_zero(level: float) -> None:
    for log_ratio in (0.015, -0.025, 0.035):
        estimate = student_estimate(log_ratio, 0.01, 12, 5, 10)
        interval = estimate.at(level)
        assert interval is not None and estimate.p is not None
        assert (interval.low <= 0 <= interval.high) == (estimate.p > 1 - level)


def test_speed_is_the_time_of_the_base_over_that_of_the_arm() -> None:
    assert Interval(math.log(0.4), math.log(0.5)).ratios == (pytest.approx(0.4), pytest.approx(0.5))
    assert Interval(math.log(0.4), math.log(0.5)).speed == (pytest.approx(2.0), pytest.approx(2.5))


def test_holm_judges_each_rank_at_its_level_until_the_first_failure() -> None:
    steps = holm([0.03, 0.001, None, 0.012])
    assert [step.level for step in steps] == pytest.approx(
        [1 - 0.05 / 2, 1 - 0.05 / 4, 1 - 0.05, 1 - 0.05 / 3]
    )
    assert [step.rejected for step in steps] == [False, True, False, True]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_just_what_its_adjusted_p_says(ps: list[float]) -> None:
    ordered = sorted(ps)
    for p, step in zip(ps, holm(ps), strict=True):
        at_most = [min(1.0, q * (len(ps) - i)) for i, q in enumerate(ordered) if q <= p]
        adjusted = max(at_most[: ordered.index(p) + 1])
        if not math.isclose(adjusted, 0.05, rel_tol=1e-9):
            assert step.rejected == (adjusted <= 0.05)


def with_half_width(log_ratio: float, half_width: float, n: int = 10) -> Estimate:
    return Estimate(
        log_ratio, Interval(log_ratio - half_width, log_ratio + half_width), 0.5, Method.POOLED, n
    )


@pytest.mark.parametrize(
    ("log_ratio", "half_width", "rounds"),
    [
        (-0.03, 0.039, 39),  # nearly twice the distance of 0.02 to the margin: 10 (0.039 / 0.02)^2 = 38.03
        (0.0, 0.019, 37),  # no difference, once the interval fits between the margins
        (-0.03, 0.001, 11),  # precise already, but Holm's level failed: at least one more
        (-0.01, 0.02, None),  # on the edge
    ],
)
def test_the_rounds_that_would_decide(log_ratio: float, half_width: float, rounds: int | None) -> None:
    assert rounds_to_decide(with_half_width(log_ratio, half_width), 0.01) == rounds


def test_without_an_interval_no_number_of_rounds_is_promised() -> None:
    assert rounds_to_decide(no_estimate([0.1]), 0.01) is None


def test_rounds_stop_on_precision_alone() -> None:
    assert precise_enough(with_half_width(0.0, 0.01), 0.01)
    assert not precise_enough(with_half_width(-0.5, 0.02), 0.01)
    assert not precise_enough(no_estimate([0.1]), 0.01)


@pytest.mark.parametrize(
    ("one_off_arm_s", "one_off_base_s", "t_arm_s", "t_base_s", "iterations"),
    [
        (12.0, 2.0, 0.5, 1.0, 20.0),
        (12.0, 2.0, 2.0, 1.0, None),
        (2.0, 12.0, 0.5, 1.0, None),
        (2.0, 2.0, 0.5, 1.0, None),
    ],
)
def test_break_even_needs_a_cost_and_a_saving(
    one_off_arm_s: float, one_off_base_s: float, t_arm_s: float, t_base_s: float, iterations: float | None
) -> None:
    assert break_even(one_off_arm_s, one_off_base_s, t_arm_s, t_base_s) == iterations


def test_the_error_of_many_servers_shrinks_with_them_and_not_with_the_rounds_of_each() -> None:
    assert pair_error(10, 1, 0.02) == pytest.approx(0.02 / math.sqrt(10))
    assert pair_error(5, 2, 0.02) == pytest.approx(pair_error(10, 1, 0.02))
    assert pair_error(5, 1000, 0.02, 0.01) == pytest.approx(0.01 / math.sqrt(5), rel=0.01)


def test_with_many_degrees_the_effect_is_the_normal_sum_of_two_quantiles() -> None:
    assert detectable_effect(1.0, 10**6) == pytest.approx(1.95996 + 0.84162, rel=1e-4)


def test_fewer_degrees_and_more_comparisons_find_only_larger_effects() -> None:
    assert detectable_effect(1.0, 4) > detectable_effect(1.0, 40) > detectable_effect(1.0, 400)
    assert detectable_effect(1.0, 40, comparisons=12) > detectable_effect(1.0, 40)


def test_without_degrees_of_freedom_nothing_is_found() -> None:
    assert detectable_effect(0.01, 0) == math.inf
