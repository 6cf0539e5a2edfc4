"""Arms that stop by themselves, simulated with the shipped rule: intervals hold, no claim is false.

The table with many more sweeps: tests/benchmarks/table_statistics.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from machines import Stopped, claims_falsely, generations, held_by, measured_until

from perfsweep.pipelines.statistics import confidence_sequence
from perfsweep.pipelines.store import stop_rule

PLANTED = [0.0, 0.0, 0.0, -0.03, 0.2]
MARGIN = 0.004


@pytest.fixture(scope="module")
def times() -> list[np.ndarray]:
    """Sweeps whose second arm is three times as noisy as the others."""
    rng = np.random.default_rng(3)
    return [generations(rng, PLANTED, 14, loud={2: 3.0}) for _ in range(40)]


def rates(sweeps: list[Stopped]) -> tuple[float, float]:
    """Share of intervals that hold what was planted, and of sweeps with a false claim."""
    held = np.mean([held_by(one.decisions, PLANTED) for one in sweeps])
    return float(held), float(np.mean([claims_falsely(one.decisions, PLANTED) for one in sweeps]))


def test_arms_that_stop_by_themselves_keep_coverage_and_claim_nothing_false(times: list[np.ndarray]) -> None:
    sweeps = [measured_until(one, 0.02, MARGIN) for one in times]
    held, false = rates(sweeps)
    assert 0.92 <= held <= 0.98
    assert false <= 0.07
    rounds = np.mean([one.rounds for one in sweeps], axis=0)
    assert rounds[2] > 12 > 8 > rounds[1], "the noisy arm goes on, and not the others"


def test_mutant_a_plug_in_sequence_from_two_rounds_on_does_not(
    times: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def half_width(error: float, n: int, level: float) -> float:
        """Robbins' mixture for a known variance, with the estimated one in its place."""
        r = confidence_sequence.PRIOR
        return error * math.sqrt((n + r) / n * math.log((n + r) / (r * (1 - level) ** 2)))

    monkeypatch.setattr(confidence_sequence, "half_width", half_width)
    monkeypatch.setattr(stop_rule, "LEAST_TO_STOP", 2)
    held, _ = rates([measured_until(one, 0.02, MARGIN) for one in times[:20]])
    assert held < 0.9
