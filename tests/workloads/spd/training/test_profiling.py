"""What profilers record of a training, and when they stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from perfsweep.workloads.spd.training import profiling
from perfsweep.workloads.spd.training.profiling import RING, EventTimes, profiler_for

NOTHING = {"recorded_events": 0, "profiled_steps": 0}


def iterate(profiler: Any, iterations: int) -> None:
    for _ in range(iterations):
        profiler.iteration_starts()
        profiler.iteration_ends()


class Event:
    """An event that counts when it was last recorded."""

    now = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = -1.0

    def record(self) -> None:
        Event.now += 1
        self.at = Event.now

    def elapsed_time(self, other: Event) -> float:
        return 1000 * other.at + self.at


@pytest.mark.parametrize("iterations", [0, 3, RING, RING + 2])
def test_the_last_times_are_kept_in_a_ring_and_read_in_their_order(
    monkeypatch: pytest.MonkeyPatch, iterations: int
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    Event.now = 0.0
    profiler = profiler_for("events", Path())
    assert isinstance(profiler, EventTimes)
    iterate(profiler, iterations)
    kept = range(max(iterations - RING, 0), iterations)
    assert profiler.milliseconds() == [1000.0 * (2 * i + 2) + 2 * i + 1 for i in kept]
    assert profiler.counters() == {**NOTHING, "recorded_events": 2 * iterations}


def test_without_a_profiler_nothing_is_recorded(tmp_path: Path) -> None:
    profiler = profiler_for("off", tmp_path)
    iterate(profiler, 3)
    assert profiler.counters() == NOTHING and not list(tmp_path.iterdir())


class Profile:
    """PyTorch's profiler as far as it is asked."""

    def __init__(self, **options: Any) -> None:
        self.options, self.step_number, self.running = options, 0, False

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        assert self.running
        self.running = False

    @property
    def current_action(self) -> Any:
        return self.options["schedule"](self.step_number)

    def step(self) -> None:
        last = self.current_action is torch.profiler.ProfilerAction.RECORD_AND_SAVE
        self.step_number += 1
        if last:
            self.options["on_trace_ready"](self)

    def export_chrome_trace(self, file: str) -> None:
        Path(file).write_text("trace")


def test_a_trace_of_the_active_steps_is_written_once_and_profiling_ends_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(profiling, "profile", Profile)
    profiler: Any = profiler_for("torch", tmp_path)
    iterate(profiler, profiling.WAIT + profiling.WARMUP + profiling.ACTIVE - 1)
    assert profiler._profile.running and not (tmp_path / "trace.json").exists()
    iterate(profiler, 1)
    assert not profiler._profile.running and (tmp_path / "trace.json").read_text() == "trace"
    iterate(profiler, 4)
    assert profiler.counters() == {**NOTHING, "profiled_steps": profiling.ACTIVE}
    profiler.close()
    unfinished: Any = profiler_for("torch", tmp_path)
    iterate(unfinished, profiling.WAIT)
    unfinished.close()
    assert not unfinished._profile.running and unfinished.counters()["profiled_steps"] == 0
