"""A job written as a generator: its steps, its clock, and its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.job_passes import JobOfPasses


class Three(JobOfPasses):
    """Three iterations, of which the second may fail."""

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.log = fails, list[object]()

    def work(self) -> Iterator[None]:
        yield
        for number in range(3):
            if number == 1 and self.fails:
                raise ValueError("broken")
            self.log.append((number, self.clock))
            if number < 2:
                yield

    def job_ended(self) -> None:
        self.log.append("ended")


def test_each_step_does_one_iteration_by_its_clock_and_the_last_one_ends_the_job() -> None:
    job, clocks = Three(), [NullClock() for _ in range(3)]
    assert job.done()
    job.begin(job.work())
    assert not job.done()
    assert job.log == []
    for number, clock in enumerate(clocks):
        job.step(clock)
        assert job.clock not in clocks
        assert job.done() == (number == 2)
    assert job.log == [(0, clocks[0]), (1, clocks[1]), (2, clocks[2]), "ended"]
    job.step(NullClock())
    assert len(job.log) == 4


def test_a_step_that_fails_lets_go_of_its_clock() -> None:
    job, clock = Three(fails=True), NullClock()
    job.begin(job.work())
    job.step(clock)
    with pytest.raises(ValueError, match="broken"):
        job.step(clock)
    assert job.clock is not clock
    assert "ended" not in job.log
