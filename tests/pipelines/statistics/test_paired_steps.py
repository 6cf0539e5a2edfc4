"""Steps and time to a target over paired seeds, runs that missed it included; and percentiles of steps."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from perfsweep.pipelines.statistics.estimates import Estimate, no_estimate, student_estimate
from perfsweep.pipelines.statistics.paired_steps import (
    UNMARKED,
    PairedSteps,
    _log_likelihood,
    excess_of_slow_steps,
    paired_steps,
    percentile,
    steps_to_target,
    time_to_target,
)

SEED_SD, OWN_SD = 0.2, 0.1


def trainings(
    rng: np.random.Generator, seeds: int, log_ratio: float, missed: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Steps of arm and base by seed, infinite beyond a cap that this share of the slower one's runs miss."""
    shared = rng.normal(6.0, SEED_SD, seeds)
    logs = shared + rng.normal(0, OWN_SD, (2, seeds)) + np.array([[log_ratio], [0.0]])
    scatter = math.hypot(SEED_SD, OWN_SD)
    cap = math.exp(6.0 + max(log_ratio, 0.0) + scatter * NormalDist().inv_cdf(1 - missed))
    steps = np.exp(logs)
    steps[steps > cap] = math.inf
    return steps[0], steps[1], cap


def test_without_missed_runs_the_estimate_is_the_mean_of_the_pairs() -> None:
    arm, base = [110.0, 231.0, 99.0], [100.0, 200.0, 90.0]
    logs = [math.log(a / b) for a, b in zip(arm, base, strict=True)]
    mean = sum(logs) / 3
    deviation = math.sqrt(sum((one - mean) ** 2 for one in logs) / 2)
    found = paired_steps(arm, base, 1000.0)
    assert found is not None and found.degrees == 2 and found.seeds == 3
    assert found.log_ratio == pytest.approx(mean)
    assert found.error == pytest.approx(deviation / math.sqrt(3))


def test_intervals_hold_the_truth_with_missed_runs_included() -> None:
    rng = np.random.default_rng(3)
    held = []
    while len(held) < 60:
        found = paired_steps(*trainings(rng, 10, 0.15, missed=0.1))
        if found is not None:
            estimate = steps_to_target(found)
            assert estimate.interval is not None
            held.append(estimate.interval.low <= 0.15 <= estimate.interval.high)
    assert np.mean(held) >= 0.87  # three standard errors below 0.95; tests/benchmarks has the real table


def test_dropping_missed_runs_would_make_the_slower_arm_look_better() -> None:
    rng = np.random.default_rng(4)
    kept, dropped = [], []
    for _ in range(25):
        arm, base, cap = trainings(rng, 20, 0.3, missed=0.15)
        if (found := paired_steps(arm, base, cap)) is not None:
            there = np.isfinite(arm) & np.isfinite(base)
            kept.append(found.log_ratio)
            dropped.append(np.log(arm[there] / base[there]).mean())
    assert abs(np.mean(kept) - 0.3) < 0.02
    assert np.mean(dropped) < np.mean(kept) - 0.005


def test_with_more_than_a_fifth_missed_there_is_no_ratio() -> None:
    base = [100.0] * 10
    assert paired_steps([*[110.0] * 8, math.inf, math.inf], base, 200.0) is not None
    assert paired_steps([*[110.0] * 7, math.inf, math.inf, math.inf], base, 200.0) is None
    assert paired_steps(base, [*[110.0] * 7, math.inf, math.inf, math.inf], 200.0) is None


def test_a_missed_run_counts_as_more_steps_than_the_cap() -> None:
    arm, base = [110.0, 120.0, 95.0, 130.0, 105.0], [100.0, 104.0, 99.0, 110.0, 101.0]
    whole = paired_steps(arm, base, 140.0)
    missed = paired_steps([*arm[:4], math.inf], base, 140.0)
    assert whole is not None and missed is not None
    assert missed.log_ratio > whole.log_ratio and missed.error > 0 and missed.degrees == 3


def test_equal_trainings_differ_by_nothing_although_both_missed() -> None:
    steps = [100.0, 200.0, 300.0, 150.0, math.inf]
    found = paired_steps(steps, steps, 400.0)
    assert found is not None and (found.log_ratio, found.error) == (0.0, 0.0)
    assert found.degrees == 3, "of four pairs that reached it"
    for one, other in ((steps, [*steps[:4], 400.0]), ([*steps[:4], 400.0], steps)):
        found = paired_steps(one, other, 400.0)
        assert found is not None and found.error > 0, "only one missed, so that they are not equal"


@pytest.mark.parametrize("shared", [0.005, 0.2], ids=["seeds alike", "seeds apart"])
def test_intervals_hold_the_truth_where_pairs_differ_by_less_than_a_look(shared: float) -> None:
    rng, every, held = np.random.default_rng(5), 2.0, []
    for _ in range(150):
        truth = rng.uniform(-0.02, 0.02)
        logs = math.log(rng.uniform(58, 62)) + rng.normal(0, shared, 10) + np.array([[truth], [0.0]])
        found = paired_steps(*np.ceil(np.exp(logs) / every) * every, 400.0, every)
        assert found is not None
        interval = steps_to_target(found).interval
        held.append(interval is not None and interval.low <= truth <= interval.high)
    assert np.mean(held) >= 0.93


def test_equal_steps_are_equal_as_far_as_looks_tell() -> None:
    steps = [60.0, 62.0, 64.0, 58.0, 70.0]
    found = paired_steps(steps, steps, 400.0, every=2.0)
    assert found is not None and found.log_ratio == 0.0
    assert found.error == pytest.approx(2 / math.sqrt(6) / 63 / math.sqrt(5), rel=0.02)


def test_two_seeds_say_nothing() -> None:
    assert paired_steps([100.0, 120.0], [110.0, 100.0], 500.0) is None


def test_pairs_that_both_missed_count_as_likely_as_that_is() -> None:
    logs = np.array([[1.0, 1.2, 1.5, 1.5], [0.9, 1.4, 1.1, 1.5]])
    missed = np.array([[False, False, True, True], [False, False, False, True]])
    means, deviations = (0.1, 2.4), (0.3, 0.5)
    without = _log_likelihood(logs[:, :3], missed[:, :3], means, deviations)
    apart, both = (one**2 for one in deviations)
    variance, shared = (both + apart) / 4, (both - apart) / 4
    centre = [(means[1] + means[0]) / 2, (means[1] - means[0]) / 2]
    normal = multivariate_normal([-one for one in centre], [[variance, shared], [shared, variance]])
    beyond = math.log(normal.cdf([-1.5, -1.5]))  # both above 1.5
    assert _log_likelihood(logs, missed, means, deviations) == pytest.approx(without + beyond, abs=1e-4)


STEPS = PairedSteps(log_ratio=-0.2, error=0.03, degrees=4.0, seeds=5)
TIMES = student_estimate(0.5, 0.04, degrees=9.0, n=3, rounds=10)


def test_log_ratios_add_up_and_so_do_their_variances() -> None:
    both = time_to_target(STEPS, TIMES)
    assert both is not None
    assert (both.log_ratio, both.error) == (pytest.approx(0.3), pytest.approx(0.05))
    # Satterthwaite: 0.0025^2 / (0.0009^2 / 4 + 0.0016^2 / 9)
    assert both.degrees == pytest.approx(12.83, abs=0.01)
    assert (both.n, both.rounds) == (5, 10)
    shifted = time_to_target(STEPS, TIMES, 0.1)  # steps that do other work
    assert shifted is not None and shifted.error == both.error
    assert shifted.log_ratio == pytest.approx(both.log_ratio + 0.1)


def test_times_whose_error_nobody_knows_give_no_time_to_the_target() -> None:
    assert time_to_target(STEPS, no_estimate([0.5])) is None


@pytest.mark.parametrize(("steps", "times", "degrees"), [(4.0, 9.0, 4.0), (9.0, 4.0, 4.0)])
def test_two_ratios_known_exactly_keep_the_fewer_degrees(steps: float, times: float, degrees: float) -> None:
    exact = time_to_target(PairedSteps(0.1, 0.0, steps, 5), student_estimate(0.1, 0.0, times, 3, 10))
    assert exact is not None and exact.degrees == degrees
    assert exact.interval is not None and exact.interval.half_width == 0


def test_the_steps_alone_have_the_interval_of_their_seeds() -> None:
    alone: Estimate = steps_to_target(STEPS)
    assert (alone.log_ratio, alone.error, alone.degrees, alone.n, alone.rounds) == (-0.2, 0.03, 4.0, 5, 5)
    assert alone.interval is not None
    assert alone.interval.half_width == pytest.approx(2.776 * 0.03, rel=1e-3)  # Student's t of four
    assert alone.p is not None and not math.isnan(alone.p)


def test_a_percentile_lies_as_often_below_as_above_the_true_one() -> None:
    rng = np.random.default_rng(0)
    true = np.exp(2.3263478740408408)  # z of 0.99
    found = np.array([percentile(np.exp(rng.standard_normal(300)), 99.0) for _ in range(1500)])
    usual = np.array([np.percentile(np.exp(rng.standard_normal(300)), 99.0) for _ in range(1500)])
    assert abs((found > true).mean() - 0.5) < 0.04
    assert (usual > true).mean() < 0.46  # what linear interpolation would say


def test_the_phase_that_took_the_time_of_slow_steps_is_told() -> None:
    rng = np.random.default_rng(1)
    data, forward = rng.normal(100, 1, 400), rng.normal(300, 2, 400)
    data[::40] += 900  # ten slow steps, by the loader
    forward[5] += 100
    times = data + forward + 50
    excess = excess_of_slow_steps(times, {"data": data, "forward": forward})
    assert excess["data"] == pytest.approx(9000, rel=0.02)
    assert excess["forward"] < 300 and abs(excess[UNMARKED]) < 50


def test_time_that_no_phase_marks_is_told_apart() -> None:
    times = np.full(400, 100.0)
    times[:10] = 300.0
    assert excess_of_slow_steps(times, {"data": np.full(400, 20.0)}) == {"data": 0.0, UNMARKED: 2000.0}


def test_equal_steps_have_no_slow_ones() -> None:
    assert excess_of_slow_steps(np.full(300, 7.0), {"data": np.full(300, 2.0)}) == {}
