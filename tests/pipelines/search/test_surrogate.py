"""What is expected of arms that nobody measured, from those that were."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfsweep.pipelines.search.surrogate import LENGTH_SCALE, PAIR_SD, Factor, Measured, Point, predict

SIZES = Factor("slab", (None, 1, 2, 4), (None, 0.0, 1.0, 2.0))
FUSE, SHARE = Factor("fuse", (None, "on")), Factor("share", (None, "on"))


@pytest.mark.parametrize(
    ("one", "other", "value"),
    [
        (1, 1, 1.0),
        (1, 2, math.exp(-0.5 * (1 / LENGTH_SCALE) ** 2)),
        (3, 1, math.exp(-0.5 * (2 / LENGTH_SCALE) ** 2)),
        (0, 1, 0.0),  # no number is near to none
    ],
)
def test_sizes_tell_of_one_another_the_nearer_they_are(one: int, other: int, value: float) -> None:
    assert SIZES.correlation(one, other) == pytest.approx(value)
    assert SIZES.correlations()[one, other] == pytest.approx(value)


def predicted(
    times: dict[Point, float], *asked: Point, variance: float = 1e-8
) -> tuple[np.ndarray, np.ndarray]:
    values = np.array(list(times.values()))
    measured = Measured(list(times), values, np.full(len(values), variance))
    return predict([FUSE, SHARE], measured, asked)


def test_changes_add_up_where_both_were_measured_alone() -> None:
    means, deviations = predicted({(0, 0): 0.0, (1, 0): -0.2, (0, 1): -0.3}, (1, 1))
    assert -0.5 < means[0] < -0.46, "drawn a little towards the mean of all"
    # An interaction may be there, and whatever else the arm does by itself.
    assert PAIR_SD < deviations[0] < 3 * PAIR_SD


def test_noise_draws_what_is_expected_towards_the_mean_of_all() -> None:
    times = {(0, 0): 0.0, (1, 0): -0.4}
    exact, noisy = predicted(times, (1, 0))[0], predicted(times, (1, 0), variance=0.1)[0]
    assert exact[0] == pytest.approx(-0.4, abs=1e-3)
    assert -0.4 < noisy[0] < -0.2
