"""Rounding levels stay in bounds, and round."""

from __future__ import annotations

import pytest

from perfsweep.workloads.digits.declaration import SIXTEEN_BIT_BOUNDS

COMPARED = ("losses", "first_gradient", "probe_logits", "parameters")
PERCEPTRON = {"model": "mlp", "width": 64, "depth": 2}


@pytest.mark.workloads
@pytest.mark.parametrize(("level", "config"), [("bf16", {}), ("bf16", PERCEPTRON), ("fp16", PERCEPTRON)])
def test_sixteen_bit_levels_stay_within_their_bounds_and_round(evidence_of, level, config) -> None:
    arm, base = (evidence_of(24, amp=amp, config=config).tensors for amp in (level, "off"))
    off = {name: ((arm[name] - base[name]).norm() / base[name].norm()).item() for name in COMPARED}
    assert all(off[name] <= SIXTEEN_BIT_BOUNDS[name] for name in COMPARED), off
    # Levels that do not round differ by 3e-6 at most: were autocast lost, the bounds would hold as well.
    assert min(off.values()) > 1e-5
