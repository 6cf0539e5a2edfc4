"""Intervals of tails, stalls and time to quality hold the truth; tables: benchmarks/table_quantities.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_quantities import (
    BASE,
    PERCENTILES,
    StepTimes,
    Trainings,
    Waiting,
    held_share,
    held_tails,
    held_time,
)

ARMS = (BASE, replace(BASE, slow=0.0005), replace(BASE, slow=0.2, level=-0.2), replace(BASE, noise=0.08))
"""A base of a tenth slow steps, and arms with fewer, with more, and with a wider body."""


def coverage(sweeps: int, servers: int = 5, steps: int = 300) -> np.ndarray:
    """Share of intervals of each percentile that hold the truth."""
    rng = np.random.default_rng(11)
    held = [held_tails(rng, ARMS, 10, servers, steps) for _ in range(sweeps)]
    return np.mean(held, axis=(0, 2))


def told(sweeps: int, trainings: Trainings) -> float:
    """Coverage over the sweeps that have a ratio."""
    rng = np.random.default_rng(12)
    found = [held_time(rng, trainings) for _ in range(sweeps)]
    return float(np.mean([one for one in found if one is not None]))


def test_the_true_percentile_of_simulated_steps_is_what_many_of_them_show() -> None:
    arm = StepTimes(noise=0.08, slow=0.03)
    drawn = np.percentile(arm.draw(np.random.default_rng(0), 40, 2000), PERCENTILES)
    assert np.log(drawn) == pytest.approx([arm.quantile(at) for at in PERCENTILES], abs=0.02)


@pytest.mark.slow
def test_intervals_of_tails_hold_the_truth_as_often_as_they_say() -> None:
    assert (np.abs(coverage(70) - 0.95) <= 0.03).all()


@pytest.mark.slow
def test_intervals_of_the_stall_of_an_arm_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(13)
    held = [held_share(rng, Waiting(noise=0.15, spikes=0.1), 10, 5) for _ in range(400)]
    assert abs(np.mean(held) - 0.95) <= 0.03


@pytest.mark.slow
def test_intervals_of_time_to_quality_hold_the_truth_as_often_as_they_say() -> None:
    assert abs(told(200, Trainings(10, missed=0.1)) - 0.95) <= 0.04
