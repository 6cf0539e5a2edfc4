"""Estimates, intervals and corrections against their definitions and against scipy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.statistics.estimates import (
    LEVEL,
    Estimate,
    Interval,
    Method,
    PooledVariance,
    break_even,
    estimate_effect,
    hodges_lehmann,
    holm,
    pooled_variance,
    precise_enough,
    rounds_to_decide,
    signed_rank_decides,
    signed_rank_interval,
    signed_rank_p,
)

RNG = np.random.default_rng(20)
# A grid of thirty-seconds makes exact ties and zeros likely, which real numbers never would.
GRID = st.integers(-20, 20).map(lambda i: i / 32)


def test_hodges_lehmann_is_the_median_of_pairwise_means() -> None:
    d = RNG.normal(size=9)
    means = [(a + b) / 2 for a, b in itertools.combinations_with_replacement(d, 2)]
    assert hodges_lehmann(d) == pytest.approx(np.median(means), rel=1e-12)


def test_hodges_lehmann_of_nothing_is_nan() -> None:
    assert math.isnan(hodges_lehmann([]))


@pytest.mark.parametrize("n", [1, 5, 6, 10, 15])
def test_the_signed_rank_p_is_scipys_exact_one(n: int) -> None:
    from scipy.stats import wilcoxon

    d = RNG.normal(0.3, 1, n)
    assert signed_rank_p(d) == pytest.approx(wilcoxon(d, method="exact")[1], rel=1e-10)


def test_the_signed_rank_distribution_is_that_of_all_sign_patterns() -> None:
    d = np.array([0.1, -0.25, 0.4, 0.8, -1.6, 3.3])
    ranks = np.arange(1, 7)
    observed = min(ranks[d > 0].sum(), ranks[d < 0].sum())
    sums = np.array([ranks[list(signs)].sum() for signs in itertools.product([False, True], repeat=6)])
    assert signed_rank_p(d) == pytest.approx(2 * np.mean(sums <= observed))


@pytest.mark.parametrize(("n", "k"), [(6, 1), (8, 4), (10, 9), (20, 53), (30, 138)])
def test_the_interval_counts_as_many_walsh_averages_as_the_printed_tables(n: int, k: int) -> None:
    """Critical values of the two-sided 5 % signed rank test (Wilcoxon 1945; any table) are k - 1."""
    d = RNG.normal(size=n)
    walsh = sorted((a + b) / 2 for a, b in itertools.combinations_with_replacement(d, 2))
    interval = signed_rank_interval(d)
    assert interval is not None
    assert (interval.low, interval.high) == (pytest.approx(walsh[k - 1]), pytest.approx(walsh[-k]))


def test_five_pairs_have_no_signed_rank_interval_at_95_percent() -> None:
    assert signed_rank_interval([0.1, 0.2, 0.3, 0.4, 0.5]) is None
    assert signed_rank_interval([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]) is not None


@given(
    st.lists(GRID, min_size=1, max_size=14),
    st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99, 1 - 0.05 / 12, 0.99975]),
)
def test_p_is_at_most_alpha_just_when_the_interval_excludes_zero(d: list[float], level: float) -> None:
    interval = signed_rank_interval(d, level)
    excludes = interval is not None and not interval.low <= 0 <= interval.high
    assert excludes == (signed_rank_p(d) <= 1 - level + 1e-12)


@given(st.lists(GRID, min_size=6, max_size=14))
def test_the_estimate_lies_inside_the_interval_and_turns_over_with_the_data(d: list[float]) -> None:
    interval, turned = signed_rank_interval(d), signed_rank_interval([-x for x in d])
    assert interval is not None and turned is not None
    assert interval.low <= hodges_lehmann(d) <= interval.high
    assert (turned.low, turned.high) == (-interval.high, -interval.low)


@pytest.mark.parametrize(("n", "comparisons"), [(6, 1), (8, 6), (10, 25), (12, 102)])
def test_the_rounds_at_which_the_signed_rank_can_decide(n: int, comparisons: int) -> None:
    assert signed_rank_decides(n, comparisons)
    assert not signed_rank_decides(n, comparisons + 1)
    agreeing = np.linspace(0.1, 0.2, n)
    assert holm([signed_rank_p(agreeing)] + [1.0] * (comparisons - 1))[0].rejected
    assert not holm([signed_rank_p(agreeing)] + [1.0] * comparisons)[0].rejected


def test_the_residual_mean_square_knows_the_noise_and_not_the_arms_or_rounds() -> None:
    arms, rounds = RNG.normal(0, 1, (4, 1)), RNG.normal(0, 1, (1, 2000))
    variance = pooled_variance(arms + rounds + RNG.normal(0, 0.02, (4, 2000)))
    assert variance is not None
    assert variance.degrees == 3 * 1999
    # Four relative standard errors of a variance with 5997 degrees of freedom: sqrt(2 / 5997) = 1.8 %.
    assert variance.mean_square == pytest.approx(0.02**2, rel=0.075)


def test_packs_pool_their_squares_and_degrees() -> None:
    one, two = RNG.normal(size=(3, 5)), RNG.normal(size=(4, 2))
    variances = [pooled_variance(one), pooled_variance(two), pooled_variance(one, two)]
    (a, b, both) = [(v.mean_square, v.degrees) for v in variances if v is not None]
    assert both == (pytest.approx((a[0] * a[1] + b[0] * b[1]) / (a[1] + b[1])), a[1] + b[1])


@pytest.mark.parametrize("shape", [(5, 1), (1, 5), (0, 0)])
def test_without_degrees_of_freedom_there_is_no_variance(shape: tuple[int, int]) -> None:
    assert pooled_variance(np.zeros(shape)) is None


def test_the_pooled_interval_is_the_estimate_and_students_quantile_of_the_pooled_error() -> None:
    from scipy.stats import t

    log_times = RNG.normal(0, 0.02, (7, 5)) + np.array([[0, -0.1, 0, 0, 0, 0, 0]]).T
    variance = pooled_variance(log_times)
    found = estimate_effect(log_times[1] - log_times[0], 6, variance)
    assert variance is not None and found.interval is not None
    assert found.method is Method.POOLED
    assert variance.degrees == 6 * 4
    half = t.ppf(0.975, 24) * 1.023 * math.sqrt(2 * variance.mean_square / 5)
    centre = hodges_lehmann(log_times[1] - log_times[0])
    bounds = (found.interval.low, found.interval.high)
    assert bounds == (pytest.approx(centre - half), pytest.approx(centre + half))
    assert (found.p or 1) < 0.05
    assert found.interval.high < 0


def test_two_arms_alone_give_the_same_interval_pooled_or_by_their_own_variance() -> None:
    log_times = RNG.normal(0, 0.02, (2, 4))
    d = log_times[1] - log_times[0]
    pooled, own = estimate_effect(d, 1, pooled_variance(log_times)), estimate_effect(d)
    assert (pooled.method, own.method) == (Method.POOLED, Method.OWN_VARIANCE)
    assert pooled.interval is not None and own.interval is not None
    assert pooled.interval.low == pytest.approx(own.interval.low)
    assert pooled.interval.high == pytest.approx(own.interval.high)


VARIANCE = PooledVariance(0.02**2, 24)


@pytest.mark.parametrize(
    ("n", "comparisons", "variance", "method"),
    [
        (1, 1, VARIANCE, Method.NONE),
        (2, 1, VARIANCE, Method.POOLED),
        (5, 1, VARIANCE, Method.POOLED),
        (5, 1, None, Method.OWN_VARIANCE),
        (6, 1, VARIANCE, Method.SIGNED_RANK),
        (6, 2, VARIANCE, Method.POOLED),
        (8, 6, VARIANCE, Method.SIGNED_RANK),
        (8, 7, None, Method.OWN_VARIANCE),
        (10, 25, VARIANCE, Method.SIGNED_RANK),
        (12, 100, VARIANCE, Method.SIGNED_RANK),
    ],
)
def test_the_signed_rank_is_used_where_it_can_decide(
    n: int, comparisons: int, variance: PooledVariance | None, method: Method
) -> None:
    found = estimate_effect(RNG.normal(0, 0.02, n), comparisons, variance)
    assert found.method is method
    assert (found.interval is None) == (found.p is None) == (method is Method.NONE)


@pytest.mark.parametrize("method", [Method.SIGNED_RANK, Method.POOLED])
def test_an_estimate_gives_wider_intervals_at_higher_levels_and_the_plain_one_at_95(method: Method) -> None:
    # Among a million comparisons the signed rank of twelve rounds cannot decide.
    comparisons = 1 if method is Method.SIGNED_RANK else 10**6
    found = estimate_effect(RNG.normal(0, 0.02, 12), comparisons, VARIANCE)
    assert found.method is method
    assert found.at(LEVEL) == found.interval
    wider = found.at(0.995)
    assert wider is not None and found.interval is not None
    assert wider.low < found.interval.low < found.log_ratio < found.interval.high < wider.high


def test_a_level_that_the_rounds_cannot_reach_has_no_interval() -> None:
    assert estimate_effect(RNG.normal(0, 0.02, 6)).at(0.99) is None


@pytest.mark.parametrize(("d", "reason"), [([], "no round"), ([0.1], "one round has no interval")])
def test_too_few_rounds_say_in_words_why_there_is_no_interval(d: list[float], reason: str) -> None:
    found = estimate_effect(d)
    assert reason in found.reason
    assert found.at(LEVEL) is None


@pytest.mark.parametrize("function", [hodges_lehmann, signed_rank_interval, signed_rank_p, estimate_effect])
def test_a_missing_value_is_never_dropped_in_silence(function) -> None:
    with pytest.raises(ValueError, match="not finite"):
        function([0.1, math.nan])


def test_speed_is_the_time_of_the_base_over_that_of_the_arm() -> None:
    assert Interval(math.log(0.4), math.log(0.5)).ratios == (pytest.approx(0.4), pytest.approx(0.5))
    assert Interval(math.log(0.4), math.log(0.5)).speed == (pytest.approx(2.0), pytest.approx(2.5))


def test_holm_judges_each_rank_at_its_level_until_the_first_failure() -> None:
    steps = holm([0.03, 0.001, None, 0.012])
    assert [step.level for step in steps] == pytest.approx(
        [1 - 0.05 / 2, 1 - 0.05 / 4, 1 - 0.05, 1 - 0.05 / 3]
    )
    assert [step.rejected for step in steps] == [False, True, False, True]


def test_holm_rejects_nothing_after_a_failure_even_where_the_level_would_allow_it() -> None:
    # 0.045 is below 0.05, the level of the last rank, but 0.04 before it failed at 0.025.
    assert [step.rejected for step in holm([0.04, 0.045])] == [False, False]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_just_what_its_adjusted_p_says(ps: list[float]) -> None:
    ordered = sorted(ps)
    for p, step in zip(ps, holm(ps), strict=True):
        at_most = [min(1.0, q * (len(ps) - i)) for i, q in enumerate(ordered) if q <= p]
        adjusted = max(at_most[: ordered.index(p) + 1])
        if not math.isclose(adjusted, 0.05, rel_tol=1e-9):
            assert step.rejected == (adjusted <= 0.05)


def test_holm_of_nothing_is_nothing() -> None:
    assert holm([]) == []


def with_half_width(log_ratio: float, half_width: float, n: int = 10) -> Estimate:
    return Estimate(
        log_ratio, Interval(log_ratio - half_width, log_ratio + half_width), 0.5, Method.SIGNED_RANK, n
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
    assert rounds_to_decide(estimate_effect([0.1]), 0.01) is None


def test_rounds_stop_on_precision_alone() -> None:
    assert precise_enough(with_half_width(0.0, 0.01), 0.01)
    assert not precise_enough(with_half_width(-0.5, 0.02), 0.01)
    assert not precise_enough(estimate_effect([0.1]), 0.01)


@pytest.mark.parametrize(
    ("one_off_arm_s", "one_off_base_s", "t_arm_s", "t_base_s", "iterations"),
    [
        (12.0, 2.0, 0.5, 1.0, 20.0),
        (12.0, 2.0, 1.0, 1.0, None),
        (12.0, 2.0, 2.0, 1.0, None),
        (2.0, 12.0, 0.5, 1.0, None),
        (2.0, 2.0, 0.5, 1.0, None),
    ],
)
def test_break_even_needs_a_cost_and_a_saving(
    one_off_arm_s: float, one_off_base_s: float, t_arm_s: float, t_base_s: float, iterations: float | None
) -> None:
    assert break_even(one_off_arm_s, one_off_base_s, t_arm_s, t_base_s) == iterations
