"""The smallest effect that is found in four sweeps of five."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipelines.statistics.detectable import detectable_effect
from pipelines.statistics.estimates import signed_rank_p

# Effect in sd of one pair that the signed rank test at 5 % detects with 80 % power: simulated elsewhere.
TABLE = {6: 1.78, 8: 1.30, 10: 1.03, 12: 0.92, 16: 0.79, 20: 0.67, 30: 0.54}


@pytest.mark.parametrize(("n", "sd"), TABLE.items())
def test_the_detectable_effect_is_that_of_a_table_made_elsewhere(n: int, sd: float) -> None:
    assert detectable_effect(n, 0.02) == pytest.approx(0.02 * sd, rel=0.05)


@pytest.mark.parametrize(("n", "comparisons"), [(6, 1), (8, 6), (10, 1), (10, 20), (16, 12)])
def test_the_signed_rank_finds_the_detectable_effect_in_four_samples_of_five(
    n: int, comparisons: int
) -> None:
    shift = detectable_effect(n, 1.0, comparisons)
    samples = np.random.default_rng(n).normal(shift, 1.0, (1500, n))
    # The error of 1500 samples is .010, that of the shift a little less.
    assert 0.76 < np.mean([signed_rank_p(d) <= 0.05 / comparisons for d in samples]) < 0.84


def test_more_rounds_detect_less_and_more_comparisons_detect_later() -> None:
    effects = [detectable_effect(n, 0.02) for n in (6, 8, 10, 15, 20, 30, 40, 80, 100, 150, 400)]
    assert effects == sorted(effects, reverse=True)
    assert detectable_effect(400, 1.0) == pytest.approx(1.023 * 2.8 / 20, rel=0.05)
    assert detectable_effect(12, 0.02, comparisons=12) > detectable_effect(12, 0.02)


def test_too_few_rounds_detect_nothing_unless_a_pooled_variance_helps() -> None:
    assert detectable_effect(5, 0.02) == math.inf
    assert detectable_effect(1, 0.02, degrees=20) == math.inf
    assert 0.02 < detectable_effect(5, 0.02, degrees=20) < 0.04
