"""Times of passes: one for each, read when they are known, and of the last job alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.maths.pass_timing import PassTimes, SamplingProfiler


class Event:
    """An event on a device that reaches it only later."""

    made: list[Event]
    reached = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.number = len(Event.made)
        Event.made.append(self)

    def record(self) -> None: ...

    def query(self) -> bool:
        return self.number < Event.reached

    def elapsed_time(self, other: Event) -> float:
        return float(other.number - self.number)


def test_on_a_device_what_has_not_ended_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    Event.made, waited = [], []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(1))
    hook = PassTimes(Counts(), "cuda")
    hook.job_begins()
    hook.pass_begins(0)
    hook.pass_begins(0)
    assert hook.rows == []
    Event.reached = 2
    hook.pass_begins(1)
    assert hook.rows == [(0, 1.0)] and not waited
    hook.slab_ends()
    hook.job_ends()
    assert hook.rows == [(0, 1.0), (0, 1.0), (1, 1.0)] and waited == [1]


def test_a_profiler_samples_a_job_and_stops_with_it() -> None:
    counts = Counts()
    hook: Any = SamplingProfiler(counts)
    hook.job_ends()  # of a job that never began
    hook.job_begins()
    hook.job_ends()
    assert not hook.profiler.is_running and counts.values["profiler_samples"] == hook.session.sample_count
