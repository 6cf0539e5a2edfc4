"""Profilers next to the training, as the field report describes them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile, schedule

WAIT, WARMUP, ACTIVE = 1, 1, 3
RING = 256
RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class NoProfiler:
    """Nothing next to the training."""

    def iteration_starts(self) -> None:
        """Called before each iteration."""

    def iteration_ends(self) -> None:
        """Called after each iteration."""

    def counters(self) -> dict[str, float]:
        """Counts of what was recorded."""
        return {"recorded_events": 0, "profiled_steps": 0}

    def close(self) -> None:
        """Stop."""


class EventTimes(NoProfiler):
    """CUDA event pairs of iterations, kept in a ring and read long after: the report waits each time."""

    def __init__(self) -> None:
        self._ring = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(RING)
        ]
        self._count = 0

    def iteration_starts(self) -> None:
        self._ring[self._count % RING][0].record()

    def iteration_ends(self) -> None:
        self._ring[self._count % RING][1].record()
        self._count += 1

    def counters(self) -> dict[str, float]:
        return {**super().counters(), "recorded_events": 2 * self._count}

    def milliseconds(self) -> list[float]:
        """Device time of the last iterations, oldest first; waits for the device."""
        torch.cuda.synchronize()
        kept = range(max(self._count - RING, 0), self._count)
        return [self._ring[i % RING][0].elapsed_time(self._ring[i % RING][1]) for i in kept]


class TorchProfiler(NoProfiler):
    """PyTorch's profiler with wait, warm-up and active iterations; traces go to the scratch folder."""

    def __init__(self, folder: Path) -> None:
        self._steps = 0
        self._complete = False
        self._trace = folder / "trace.json"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
        self._profile = profile(
            activities=activities,
            schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
            on_trace_ready=self._on_trace,
            record_shapes=True,
            # the report's sample asks for stacks as well, which cost more than what is profiled
            profile_memory=True,
        )
        self._profile.start()
        self._running = True

    def _on_trace(self, found: profile) -> None:
        found.export_chrome_trace(str(self._trace))
        self._complete = True

    def iteration_ends(self) -> None:
        if self._running:
            self._steps += self._profile.current_action in RECORDING
            self._profile.step()
            if self._complete:
                self.close()

    def counters(self) -> dict[str, float]:
        return {**super().counters(), "profiled_steps": self._steps}

    def close(self) -> None:
        if self._running:
            self._running = False
            self._profile.stop()


def profiler_for(level: str, folder: Path) -> NoProfiler:
    """The profiler of a level of the toggle `profiler`."""
    if level == "torch":
        return TorchProfiler(folder)
    return EventTimes() if level == "events" else NoProfiler()
