"""What profilers record of a training, and when they stop."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsweep.workloads.spd.variants.host_work import ACTIVE, WAIT, WARMUP, TorchProfiled


class Iterations:
    """A training that does nothing."""

    def build(self) -> None:
        """Nothing."""

    def iterate(self, clock: Any) -> None:
        """Nothing."""


def profiled(part: type[Any], folder: Path) -> Any:
    made = type("Profiled", (part, Iterations), {})()
    made.counts, made.endings, made.context = Counter(), ExitStack(), SimpleNamespace(scratch_dir=folder)
    made.build()
    return made


def iterate(training: Any, iterations: int) -> None:
    for _ in range(iterations):
        training.iterate(None)


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
    monkeypatch.setattr(torch.profiler, "profile", Profile)
    training = profiled(TorchProfiled, tmp_path)
    profile = training.profile
    iterate(training, WAIT + WARMUP + ACTIVE - 1)
    assert profile.running and not (tmp_path / "trace.json").exists()
    iterate(training, 1)
    assert not profile.running and (tmp_path / "trace.json").read_text() == "trace"
    iterate(training, 4)
    assert training.counts["profiled_steps"] == ACTIVE
    training.endings.close()
    unfinished = profiled(TorchProfiled, tmp_path)
    profile = unfinished.profile
    iterate(unfinished, WAIT)
    unfinished.endings.close()
    assert not profile.running and unfinished.counts["profiled_steps"] == 0
