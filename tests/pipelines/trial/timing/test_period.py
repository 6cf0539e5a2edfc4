"""The period of loops with two beats, and growth, from the times of their iterations."""

from __future__ import annotations

import numpy as np
import pytest

from perfsweep.pipelines.trial.timing.iterations import (
    IRREGULAR,
    heavy,
    memory_growth,
    period_of,
    suffices,
    time_growth,
)


def times(period: int, factor: float, count: int = 240, phase: int = 0, noise: float = 0.08) -> np.ndarray:
    """Iterations of a millisecond, of which each `period`-th takes `factor` times as long."""
    rng = np.random.default_rng(period)
    place = (np.arange(count) + phase) % period == period - 1
    return 1e6 * np.where(place, factor, 1.0) * np.exp(noise * rng.standard_normal(count))


@pytest.mark.parametrize(
    ("period", "factor", "count"),
    [(12, 4.0, 240), (2, 2.0, 60), (50, 10.0, 240), (7, 4.0, 120), (80, 100.0, 240)],
)
@pytest.mark.parametrize("phase", [0, 5])
def test_the_period_of_heavy_iterations_is_found_at_any_phase(
    period: int, factor: float, count: int, phase: int
) -> None:
    assert period_of(times(period, factor, count, phase)) == period


def test_a_period_is_found_among_outliers_and_of_phases_that_alternate() -> None:
    found = times(12, 4.0)
    found[np.random.default_rng(1).integers(0, 240, 3)] *= 30
    assert period_of(found) == 12
    assert period_of(1e6 * (1 + np.arange(200) // 10 % 2)) == 20


@pytest.mark.parametrize("seed", range(6))
def test_scatter_the_tail_of_a_crowded_machine_and_a_drift_are_no_period(seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert period_of(1e6 * np.exp(0.1 * rng.standard_normal(240))) is None
    assert period_of(1e6 * np.exp(0.1 * rng.standard_normal(30))) is None
    assert period_of(1e6 * np.exp(np.linspace(0, 0.5, 240))) is None
    assert period_of(1e6 * (1 + rng.pareto(1.5, 240))) is None
    spikes = np.ones(240)
    spikes[rng.integers(0, 240, 2)] = 50.0
    assert period_of(1e6 * spikes) is None


@pytest.mark.parametrize("seed", range(3))
def test_heavy_iterations_at_random_are_irregular(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = 1e6 * np.where(rng.random(240) < 0.05, 20.0, 1.0)
    assert period_of(found) == IRREGULAR


def test_heavy_iterations_are_counted_with_the_time_that_they_add() -> None:
    assert heavy([1.0] * 9 + [11.0]) == (1, 0.5)
    assert heavy([1.0] * 9 + [2.0]) == (0, 0.0)


def test_iterations_are_looked_at_until_heavy_ones_came_often_enough() -> None:
    assert not suffices([1e6] * 100)
    assert suffices([1e6] * 240) and suffices([2e8] * 5)
    assert not suffices([*([1e6] * 239), 1e7])
    assert suffices([*([1e6] * 236), *([1e7] * 4)])
    assert not suffices([1e9, 5e6, 5e6, 5e6]), "one rollout of a second is no beat yet"
    assert suffices([9e9, 5e6, 5e6, 5e6])


def scatter(seed: int, count: int = 240) -> np.ndarray:
    return np.exp(0.05 * np.random.default_rng(seed).standard_normal(count))


def test_only_iterations_that_rise_grow() -> None:
    noise = scatter(0)
    assert time_growth(1e6 * noise) == 0.0
    rising = 1e6 * noise * np.linspace(1.0, 2.0, 240)
    assert time_growth(rising) == pytest.approx(0.57, abs=0.1)
    assert time_growth(rising[::-1]) == 0.0, "warming up"
    assert time_growth(np.linspace(1e6, 9e6, 20)) == time_growth([]) == memory_growth([]) == 0.0, "too few"


def test_memory_that_each_iteration_adds_is_told() -> None:
    assert memory_growth([1e9 + 65536 * n for n in range(240)]) == 65536
    assert memory_growth([1e9] * 240) == 0.0
    assert memory_growth([1e9 + 1000 * n for n in range(240)]) == 0.0, "too little to be told"
    buffers = [1e9 + min(n, 50) * 1e6 for n in range(240)]
    assert memory_growth(buffers) == 0.0, "buffers that are made once"
