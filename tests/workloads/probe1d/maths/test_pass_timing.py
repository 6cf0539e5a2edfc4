"""Times of passes: one for each, read when they are known, and of the last job alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.maths import pass_timing
from perfsweep.workloads.probe1d.maths.pass_timing import PassTimes, SamplingProfiler


def walk(hook: PassTimes, *slabs: int) -> None:
    """Passes over these slabs; a slab ends where another one begins."""
    hook.job_begins()
    for number, slab in enumerate(slabs):
        hook.pass_begins(slab)
        if slabs[number + 1 : number + 2] != (slab,):
            hook.slab_ends()
    hook.job_ends()


def test_a_pass_lasts_until_the_next_one_begins_or_its_slab_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10e6, 15e6, 16e6, 30e6, 37e6])
    monkeypatch.setattr(pass_timing.time, "perf_counter_ns", lambda: next(times))
    counts = Counts()
    hook = PassTimes(counts, "cpu")
    assert isinstance(hook, PassTimes)
    walk(hook, 0, 0, 1)
    assert hook.rows == [(0, 5.0), (0, 1.0), (1, 7.0)]
    assert counts.values["hook_records"] == 3
    hook.job_begins()
    assert hook.rows == []


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
