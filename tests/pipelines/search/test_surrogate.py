"""What is expected of arms that nobody measured, from those that were."""

from __future__ import annotations

import numpy as np
import pytest

from perfsweep.pipelines.search.factors import Factor, Measured, Point, predict

FUSE, SHARE = Factor("fuse", (None, "on")), Factor("share", (None, "on"))


SIZE = Factor("size", ("all", 1, 4, 8), (None, 0.0, 2.0, 3.0))


def covariance(one: Point, other: Point) -> float:
    """Of two arms of fuse, share and a size, by the published variances of what an arm is made of."""
    alike = [float(one[0] == other[0]), float(one[1] == other[1]), float(one[2] == other[2])]
    sizes = SIZE.sizes[one[2]], SIZE.sizes[other[2]]
    if sizes[0] is not None and sizes[1] is not None:
        alike[2] = float(np.exp(-((sizes[0] - sizes[1]) ** 2) / (2 * 1.5**2)))
    pairs = alike[0] * alike[1] + alike[0] * alike[2] + alike[1] * alike[2]
    return 1 + 0.3**2 * sum(alike) + 0.08**2 * pairs + 0.01**2 * (one == other)


def test_an_arm_is_predicted_from_all_that_share_a_level_or_have_a_size_close_to_its_own() -> None:
    arms: list[Point] = [(0, 0, 0), (1, 0, 1), (0, 1, 2), (1, 1, 3)]
    times, variances = np.array([0.0, -0.2, -0.3, 0.4]), np.array([0.01, 0.02, 0.03, 0.04])
    asked: list[Point] = [(0, 0, 0), (1, 1, 1), (0, 0, 3)]
    found, deviations = predict([FUSE, SHARE, SIZE], Measured(arms, times, variances), asked)
    between = np.array([[covariance(one, other) for other in arms] for one in arms]) + np.diag(variances)
    across = np.array([[covariance(one, other) for other in arms] for one in asked])
    weights = across @ np.linalg.inv(between)
    assert found == pytest.approx(times.mean() + weights @ (times - times.mean()))
    own = np.array([covariance(one, one) for one in asked])
    assert deviations**2 == pytest.approx(own - (weights * across).sum(axis=1))
