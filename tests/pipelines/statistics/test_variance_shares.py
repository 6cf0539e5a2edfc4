"""How much of the scatter of times belongs to processes and layout, and whether it is more than planned."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.statistics.estimates import PooledVariance
from pipelines.statistics.variance_shares import scatters_beyond, server_share


def log_times(
    server_sd: float, trial_sd: float, arms: int = 6, servers: int = 5, rounds: int = 4, seed: int = 0
) -> np.ndarray:
    """[arms, servers, rounds] log times of a machine that drifts, with effects far above the noise."""
    rng = np.random.default_rng(seed)
    return (
        rng.normal(0, 1, (arms, 1, 1))
        + rng.normal(0, 0.3, (1, servers, rounds))
        + rng.normal(0, server_sd, (arms, servers, 1))
        + rng.normal(0, trial_sd, (arms, servers, rounds))
    )


def test_the_share_of_servers_is_found_whatever_arms_and_drift_do() -> None:
    shares = [server_share([log_times(0.02, 0.01, seed=seed)]) for seed in range(200)]
    there = [share.share for share in shares if share]
    assert np.mean(there) == pytest.approx(0.8, abs=0.03)
    assert np.mean([share.p < 0.05 for share in shares if share]) > 0.99


def test_without_a_share_of_servers_one_in_twenty_is_significant() -> None:
    shares = [server_share([log_times(0.0, 0.01, seed=seed)]) for seed in range(600)]
    assert np.mean([share.p < 0.05 for share in shares if share]) == pytest.approx(0.05, abs=0.02)
    assert np.mean([share.f for share in shares if share]) == pytest.approx(1.0, abs=0.1)


def test_packs_are_pooled() -> None:
    share = server_share([log_times(0.02, 0.01), log_times(0.02, 0.01, seed=1)])
    assert share is not None
    assert share.degrees == (2 * 5 * 4, 2 * 5 * 5 * 3)


def test_the_words_that_people_read() -> None:
    share = server_share([log_times(0.0, 0.01, seed=3)])
    assert share is not None
    assert str(share) == (
        f"process and layout: {share.share:.0%} of the variance (F {share.f:.1f}, p {share.p:.2g})"
    )


@pytest.mark.parametrize("shape", [(1, 5, 4), (6, 1, 4), (6, 5, 1)])
def test_one_arm_one_server_or_one_round_each_tell_nothing(shape: tuple[int, int, int]) -> None:
    assert server_share([np.zeros(shape)]) is None


def test_equal_times_have_no_variance_to_share() -> None:
    assert server_share([np.zeros((3, 3, 3))]) is None


def test_scatter_is_beyond_the_plans_only_where_chance_does_not_explain_it() -> None:
    planned = 0.02
    one = planned**2 / 2  # of one log time; a pair has two
    assert not scatters_beyond(PooledVariance(one, 10), planned)
    assert not scatters_beyond(PooledVariance(one * 1.3, 10), planned)
    assert scatters_beyond(PooledVariance(one * 1.3, 1000), planned)
    assert scatters_beyond(PooledVariance(one * 20, 5), planned)
