"""A minute of one storm over real sweeps on this machine: whatever falls, the same command finishes them."""

from __future__ import annotations

import pytest
from storm import file_faults, process_faults, tracking_faults
from storm.driver import Storm
from storm.fault import FAULTS
from storm.world import world

pytestmark = pytest.mark.slow

_REGISTERED = (file_faults, process_faults, tracking_faults)
SEED, SECONDS = 4, 60.0


def test_a_minute_of_faults_loses_nothing_doubles_nothing_and_leaves_nothing() -> None:
    said: list[str] = []
    with world() as place:
        faults = [FAULTS[name] for name in sorted(FAULTS) if not FAULTS[name].slurm]
        outcome = Storm(place, SEED, faults, said.append).rage(SECONDS)
    assert not outcome.violations, "\n".join(said)
    assert outcome.faults >= 5 and outcome.trials >= 20 and outcome.sweeps.total() >= 1, outcome
