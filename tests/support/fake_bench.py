"""A simulated device for the check of a clock: kernels take what they are asked for, the queue has an end."""

from __future__ import annotations

from collections.abc import Callable

from clocks import FakeClock

QUEUE = 1024
LAUNCH_NS = 3_000


class FakeBench:
    """A device that is as it should be, unless one of these is planted.

    Parameters
    ----------
    drift : factor of what events say
    slows_at : kernel from which on every kernel takes a third more; None: never
    seen : share of the device's work that the profiler sees
    """

    def __init__(self, drift: float = 1.0, slows_at: int | None = None, seen: float = 1.0) -> None:
        self.clock = _Drifting(drift)
        self._slows_at, self._seen = slows_at, seen
        self._launches = 0
        self._busy_ns = 0.0

    def launch(self, duration_ns: int) -> None:
        self._launches += 1
        slow = self._slows_at is not None and self._launches % 3600 > self._slows_at
        self.clock.advance(LAUNCH_NS)
        self.clock.launch(duration_ns * 4 // 3 if slow else duration_ns)
        self._busy_ns += duration_ns

    def host(self, duration_ns: int) -> None:
        self.clock.advance(duration_ns)

    def busy_ns(self, work: Callable[[], None]) -> float | None:
        before = self._busy_ns
        work()
        return (self._busy_ns - before) * self._seen or None


class _Drifting(FakeClock):
    def __init__(self, drift: float) -> None:
        super().__init__(tick_ns=20, events=512, queue=QUEUE)
        self._drift = drift

    def elapsed_ns(self, start, end) -> int:  # type: ignore[no-untyped-def]
        return round(super().elapsed_ns(start, end) * self._drift)
