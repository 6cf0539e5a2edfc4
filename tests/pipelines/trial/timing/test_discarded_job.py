"""The discarded job: whole by default, cut off where it would take minutes."""

from __future__ import annotations

import pytest
from toys.jobs import Config, Countdown

from perfsweep.pipelines.trial.timing.clock import clock_for
from perfsweep.pipelines.trial.timing.steady import discard_job
from perfsweep.workloads.api import Device


@pytest.fixture
def job() -> Countdown:
    countdown = Countdown()
    countdown.setup(Config(length=200), {"pause_ms": 1, "skip": "none"}, None)  # type: ignore[arg-type]
    steps = countdown.step
    countdown.steps = 0  # type: ignore[attr-defined]

    def counting(clock):
        countdown.steps += 1  # type: ignore[attr-defined]
        steps(clock)

    countdown.step = counting  # type: ignore[method-assign]
    return countdown


def test_the_discarded_job_runs_whole_and_the_next_one_starts_from_its_beginning(job):
    warm = discard_job(job, clock_for(Device()), None)
    assert job.steps == warm.job_steps == 200
    assert warm.settled and warm.walls_ns[0] >= 200e6
    assert warm.step_ns == warm.walls_ns[0] // 200
    assert warm.loaded == ()  # without a GPU there is none to ask
    assert (job.ticks, job.jobs) == (0, 2)
