"""What w is measured by: each level of `qx_stat` on a few latents."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import SCALE_FLOOR, Csr
from perfsweep.workloads.probe1d.maths.levenberg_marquardt import metric_scale

# Latent 0: -3 and 4; latent 1: nothing; latent 2: 1 to 21; latent 3: hardly anything.
VALUES = [-3.0, 4.0, *range(21, 0, -1), 1e-9]
X = Csr(
    torch.tensor([0, len(VALUES)]),
    torch.tensor([0, 0, *[2] * 21, 3]),
    torch.tensor(VALUES, dtype=torch.float64),
    4,
)
COUNT = torch.tensor([2.0, 0.0, 21.0, 1.0], dtype=torch.float64)
RMS = torch.tensor([12.5**0.5, 1.0, (21 * 22 * 43 / 6 / 21) ** 0.5, SCALE_FLOOR], dtype=torch.float64)


@pytest.mark.parametrize(
    ("level", "expected", "passes", "changed"),
    [
        ("rms", RMS.tolist(), 0, 0),
        ("rms_free", RMS.tolist(), 0, 0),
        ("meanabs", [3.5, 1.0, 11.0, SCALE_FLOOR], 1, 2),
        ("max", [4.0, 1.0, 21.0, SCALE_FLOOR], 1, 2),
        ("p95", [4.0, 1.0, 20.0, SCALE_FLOOR], 1, 2),  # of 21 values, 19 lie below it
    ],
)
def test_a_scale_of_each_level(level: str, expected: list[float], passes: int, changed: int) -> None:
    counts = Counts()
    found = metric_scale(X, level, COUNT, RMS, counts)
    assert found.tolist() == pytest.approx(expected)
    assert counts.values["qx_passes"] == passes
    assert counts.values["metric_changed"] == changed
