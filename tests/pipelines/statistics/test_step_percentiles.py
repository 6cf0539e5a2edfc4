"""Percentiles of steps, and the phase that took the time of slow ones."""

from __future__ import annotations

import numpy as np
import pytest

from perfsweep.pipelines.statistics.paired_steps import UNMARKED, excess_of_slow_steps, percentile


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
