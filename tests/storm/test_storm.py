"""Half a minute of a storm over real sweeps on this machine: whatever falls, one command finishes them."""

from __future__ import annotations

import pytest
from storm.faults import FAULTS
from storm.storm import Storm
from storm.world import world

pytestmark = pytest.mark.slow

SEED, SECONDS = 4, 25.0


def test_half_a_minute_of_faults_loses_nothing_doubles_nothing_and_leaves_nothing() -> None:
    said: list[str] = []
    with world() as place:
        faults = [FAULTS[name] for name in sorted(FAULTS) if not FAULTS[name].slurm]
        outcome = Storm(place, SEED, faults, said.append).rage(SECONDS)
    assert not outcome.violations, "\n".join(said)
    assert outcome.struck.total() >= 3 and outcome.trials >= 10 and outcome.sweeps.total() >= 1, outcome
