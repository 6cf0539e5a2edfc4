"""The naive path does the naive work: its counters stay near those of the upstream project's training."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.trial.counters import Counting
from perfsweep.workloads.api import NullClock

QUIET = {"log_every": 1000, "eval_every": 1000, "save_every": 1000}

# Operator calls and host reads of an upstream iteration, two layers, twelve modules, by adversarial steps.
UPSTREAM = {1: (3480, 77)}
OPTIMIZER = 72  # the loop over parameters reads each one's step count, which upstream's count leaves out


@pytest.mark.parametrize("steps", UPSTREAM)
def test_an_iteration_costs_within_half_of_what_upstream_counts(start, steps) -> None:
    workload = start(config={**QUIET, "pgd_steps": steps})
    workload.step(NullClock())
    with Counting(1) as counting:
        workload.step(NullClock())
    found, (ops, reads) = counting.result(), UPSTREAM[steps]
    assert 1 / 1.5 <= (found["ops"] or 0) / ops <= 1.5
    assert 1 / 1.5 <= ((found["host_reads"] or 0) - OPTIMIZER) / reads <= 1.5
