"""The smallest effect that is found in four sweeps of five."""

from __future__ import annotations

import math

import pytest

from perfsweep.pipelines.statistics.estimates import detectable_effect, pair_error


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
