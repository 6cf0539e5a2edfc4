"""What is expected of arms that nobody measured, from those that were."""

from __future__ import annotations

import numpy as np
import pytest

from perfsweep.pipelines.search.surrogate import PAIR_SD, Factor, Measured, Point, predict

FUSE, SHARE = Factor("fuse", (None, "on")), Factor("share", (None, "on"))


def predicted(times: dict[Point, float], *asked: Point) -> tuple[np.ndarray, np.ndarray]:
    values = np.array(list(times.values()))
    measured = Measured(list(times), values, np.full(len(values), 1e-8))
    return predict([FUSE, SHARE], measured, asked)


def test_changes_add_up_where_both_were_measured_alone() -> None:
    means, deviations = predicted({(0, 0): 0.0, (1, 0): -0.2, (0, 1): -0.3}, (1, 1))
    assert -0.5 < means[0] < -0.46, "drawn a little towards the mean of all"
    # An interaction may be there, and whatever else the arm does by itself.
    assert PAIR_SD < deviations[0] < 3 * PAIR_SD
    # What was measured itself is known as well as it was measured.
    means, deviations = predicted({(0, 0): 0.0, (1, 0): -0.2, (0, 1): -0.3, (1, 1): -0.1}, (1, 1), (0, 1))
    assert means == pytest.approx([-0.1, -0.3], abs=1e-3) and deviations.max() < 1e-3
