"""Arm + round with spikes in it: what pseudo-values keep, and what they let go."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from perfsweep.pipelines.statistics import arm_variance
from perfsweep.pipelines.statistics.arm_variance import pseudo_values


def noise(sd: float, *shape: int) -> np.ndarray:
    return np.random.default_rng(31).normal(0, sd, shape)


def table(arms: int = 7, rounds: int = 10, sd: float = 0.01) -> np.ndarray:
    """[arms, rounds] log times of arms 5 % apart, in rounds that differ by much more."""
    return noise(sd, arms, rounds) + noise(1, rounds) + 0.05 * np.arange(arms)[:, None]


def quantiles(arms: int, rounds: int) -> np.ndarray:
    """[arms, rounds] values of a normal distribution of scale 1, and nothing by chance."""
    values = norm.ppf((np.arange(arms * rounds) + 0.5) / (arms * rounds))
    return np.random.default_rng(0).permutation(values).reshape(arms, rounds)


def differences(values: np.ndarray) -> np.ndarray:
    """Each arm's mean against the first's."""
    means = np.nanmean(values, axis=1)
    return means[1:] - means[0]


def test_rounds_cancel_and_the_levels_of_quiet_arms_are_their_means() -> None:
    log_times = table()
    assert differences(pseudo_values(log_times)) == pytest.approx(differences(log_times), abs=0.001)
    assert np.ptp(pseudo_values(log_times).mean(axis=0)) < 0.001, "nothing of the rounds is left"


def test_a_spike_moves_an_arm_by_less_than_a_tenth_of_its_noise_and_widens_nothing() -> None:
    log_times = table()
    spiked = log_times.copy()
    spiked[3, 4] += 1.0
    before, after = pseudo_values(log_times), pseudo_values(spiked)
    assert np.abs(differences(after) - differences(before)).max() < 0.006
    assert after[3].std() < 1.5 * before[3].std()
    # The mean of ten would have moved by 0.1.
    assert differences(spiked)[2] - differences(log_times)[2] == pytest.approx(0.1)


@pytest.mark.parametrize(("spike", "left"), [(8.0, 0.97), (9.8, 0.0), (12.0, 0.0)])
def test_the_bisquare_lets_go_of_a_cell_from_ten_scales_on(spike: float, left: float) -> None:
    log_times = quantiles(8, 50)
    log_times[0, 0] = spike
    spiked = pseudo_values(log_times)[0]
    assert spiked[0] - spiked[1:].mean() == pytest.approx(left, abs=0.1)


def test_what_the_bisquare_keeps_of_each_round_adds_up_to_nothing() -> None:
    log_times = quantiles(6, 8)
    log_times[[0, 1, 2], [0, 3, 5]] = 4, 5, -6  # weights of these are not those of the others
    assert np.ptp(pseudo_values(log_times).mean(axis=0)) < 1e-4, "the normal equations of an M-estimate hold"


def test_an_arm_that_is_noisier_than_the_others_is_judged_by_its_own_scale() -> None:
    log_times = quantiles(6, 20)
    log_times[2] *= 30
    assert pseudo_values(log_times)[2].std() == pytest.approx(
        5 / 6 * log_times[2].std(), rel=0.1
    )  # less the rounds


def test_pseudo_values_of_normal_noise_have_its_scale_within_a_hundredth() -> None:
    values = pseudo_values(quantiles(20, 50))
    scatter = (values - values.mean(axis=1, keepdims=True)).std(ddof=20 + 50 - 1)
    assert scatter == pytest.approx(1, rel=0.01)


def test_mutant_least_squares_gives_a_spike_its_full_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arm_variance, "LEAST_DEGREES", 10**6)
    spiked = table()
    spiked[3, 4] += 1.0
    assert pseudo_values(spiked)[3].std() > 0.2


def test_cells_that_are_missing_cost_no_bias() -> None:
    log_times = table(rounds=40)
    with_holes = log_times.copy()
    with_holes[2, :30] = np.nan  # measured only in ten rounds, all of which were slow
    with_holes[:, 30:] += 5.0
    values = pseudo_values(with_holes)
    assert np.isnan(values[2, :30]).all() and np.isfinite(values[2, 30:]).all()
    assert differences(values) == pytest.approx(differences(log_times), abs=0.015)


@pytest.mark.parametrize("shape", [(2, 4), (4, 2), (1, 5)])
def test_tables_too_small_to_tell_a_spike_are_fitted_by_least_squares(shape: tuple[int, int]) -> None:
    log_times = noise(0.01, *shape)
    expected = log_times - log_times.mean(axis=0)
    assert pseudo_values(log_times) == pytest.approx(expected, abs=1e-11)


def test_equal_figures_are_exactly_equal() -> None:
    same = np.log(np.full((5, 8), 123_456_789.0)) + noise(1, 8)
    assert np.ptp(pseudo_values(same)) == 0.0
    mostly = np.zeros((5, 8))
    mostly[2, 3] = 0.5  # more than half agree exactly: there is no scale, and nothing is thrown away
    assert differences(pseudo_values(mostly))[1] == pytest.approx(0.5 / 8)


def test_five_rounds_of_two_arms_are_the_fewest_that_tell_a_spike() -> None:
    spiked = noise(0.01, 2, 5)
    spiked[1, 2] += 1.0
    assert abs(differences(pseudo_values(spiked))[0]) < 0.05
    assert differences(pseudo_values(spiked[:, :4]))[0] == pytest.approx(0.25, abs=0.02), "its whole weight"
