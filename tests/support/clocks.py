"""A clock that tests set by hand, with a device that lags behind the host."""

from __future__ import annotations

from collections import deque
from typing import Any

from perfsweep.pipelines.trial.timing.clock import EventClock

SPENT_BEFORE_NS = 7_777
"""CPU time of a process before anybody looks: what begins at zero hides a difference that is not taken."""


class FakeEvent:
    """A mark on the time line of a `FakeClock`."""

    __slots__ = ("done_ns", "ready_ns")

    def __init__(self) -> None:
        self.done_ns = 0
        self.ready_ns = 0.0


class FakeClock(EventClock):
    """A clock that tests set by hand, with a device that lags behind the host.

    Parameters
    ----------
    time_ns : host time at the start; `advance` moves it
    tick_ns : host time that each look at the clock takes
    events : size of the pool; None for a host without a device
    lag_ns : how long after the device passed an event that is known; infinite for an event that never reports
    cpu_share : CPU time per host time
    queue : launches that may wait for the device before the next makes the host wait; None for any number
    """

    def __init__(
        self,
        time_ns: int = 0,
        tick_ns: int = 0,
        events: int | None = None,
        lag_ns: float = 0.0,
        cpu_share: float = 1.0,
        queue: int | None = None,
    ) -> None:
        super().__init__([FakeEvent() for _ in range(events or 0)])
        self.times_device = events is not None
        self.time_ns = time_ns
        self.tick_ns = tick_ns
        self.lag_ns = lag_ns
        self.cpu_share = cpu_share
        self.queue = queue
        self._queued: deque[int] = deque(maxlen=None if queue else 0)
        self.synchronisations = 0
        self.memory_bytes = 0
        self._peak_bytes = 0
        self._device_free_ns = time_ns
        self._marked: set[FakeEvent] = set()

    def now_ns(self) -> int:  # type: ignore[override]
        """Host time; the look itself takes `tick_ns`."""
        self.time_ns += self.tick_ns
        return self.time_ns

    def delay_ns(self) -> int:  # type: ignore[override]
        """Others have none of its core."""
        return 0

    def cpu_ns(self) -> int:  # type: ignore[override]
        """CPU time of the process."""
        return SPENT_BEFORE_NS + int(self.time_ns * self.cpu_share)

    def advance(self, duration_ns: int) -> None:
        """Let the host work for a while."""
        self.time_ns += duration_ns

    def launch(self, duration_ns: int) -> None:
        """Give the device work; the host goes on at once."""
        self._device_free_ns = max(self._device_free_ns, self.time_ns) + duration_ns
        self._queued.append(self._device_free_ns)
        while self.queue is not None and len(self._queued) > self.queue:
            self.time_ns = max(self.time_ns, self._queued.popleft())

    def synchronize(self) -> None:
        """Wait for the device, and for every event that will ever report."""
        self.synchronisations += 1
        reports = [event.ready_ns for event in self._marked if event.ready_ns != float("inf")]
        self.time_ns = int(max(self.time_ns, self._device_free_ns, *reports, 0))
        self._marked.clear()

    def ready(self, event: Any) -> bool:
        """Whether the device has passed the event and that is known."""
        return event.ready_ns <= self.time_ns

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Device time between two events."""
        return end.done_ns - start.done_ns

    def _record(self, event: FakeEvent) -> None:
        event.done_ns = max(self._device_free_ns, self.time_ns)
        event.ready_ns = event.done_ns + self.lag_ns
        self._marked.add(event)

    def allocate(self, size_bytes: int) -> None:
        """Change the memory in use."""
        self.memory_bytes += size_bytes
        self._peak_bytes = max(self._peak_bytes, self.memory_bytes)

    def reset_peak(self) -> None:
        """Start the peak anew from what is in use."""
        self._peak_bytes = self.memory_bytes

    def peak_bytes(self) -> int:
        """Highest memory in use since `reset_peak`."""
        return self._peak_bytes
