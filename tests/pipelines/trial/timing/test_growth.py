"""Whether iterations take longer and longer, or memory grows with each."""

from __future__ import annotations

import numpy as np
import pytest

from perfsweep.pipelines.trial.timing.growth import memory_growth, time_growth


def scatter(seed: int, count: int = 240) -> np.ndarray:
    return np.exp(0.05 * np.random.default_rng(seed).standard_normal(count))


def test_only_iterations_that_rise_grow() -> None:
    noise = scatter(0)
    assert time_growth(1e6 * noise) == 0.0
    rising = 1e6 * noise * np.linspace(1.0, 2.0, 240)
    assert time_growth(rising) == pytest.approx(0.57, abs=0.1)
    assert time_growth(rising[::-1]) == 0.0, "warming up"


def test_a_few_iterations_show_nothing() -> None:
    assert time_growth(np.linspace(1e6, 9e6, 20)) == 0.0
    assert time_growth([]) == memory_growth([]) == 0.0


def test_memory_that_each_iteration_adds_is_told() -> None:
    assert memory_growth([1e9 + 65536 * n for n in range(240)]) == 65536
    assert memory_growth([1e9] * 240) == 0.0
    assert memory_growth([1e9 + 1000 * n for n in range(240)]) == 0.0, "too little to be told"
    buffers = [1e9 + min(n, 50) * 1e6 for n in range(240)]
    assert memory_growth(buffers) == 0.0, "buffers that are made once"
