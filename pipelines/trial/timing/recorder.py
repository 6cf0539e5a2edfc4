"""The recorder that a workload's `step` marks its phases on.

Record now, resolve later: a mark puts a time and a code into one list, device events are read only once they
are ready, and phases are worked out after the region. Nothing here waits for the device inside the region.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from perfsweep.pipelines.trial.machine.usage import Moment, Usage
from perfsweep.pipelines.trial.timing.clock import EventClock, HostClock
from perfsweep.pipelines.trial.timing.series import BOUNDARY, NO_TIME, Series, series_of

CAPACITY = 16384
"""Marks after which the list is packed into an array, between two iterations."""


class _Phase:
    """Two marks on the host's time line, as a context manager that is made once per name."""

    __slots__ = ("_close", "_now", "_open", "_put")

    def __init__(self, recorder: Recorder, code: int) -> None:
        self._open = code
        self._close = -code
        self._now = recorder._now
        self._put = recorder._marks.append

    def __enter__(self) -> None:
        put = self._put
        put(self._now())
        put(self._open)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        put = self._put
        put(self._now())
        put(self._close)


class _DevicePhase:
    """Two marks on both time lines."""

    __slots__ = ("_close", "_mark", "_open")

    def __init__(self, recorder: Recorder, code: int) -> None:
        self._open = code
        self._close = -code
        self._mark = recorder._mark

    def __enter__(self) -> None:
        self._mark(self._open)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._mark(self._close)


class _DeviceMarks:
    """Events under way, oldest first, and the device times of events that have reported."""

    def __init__(self, clock: EventClock) -> None:
        self._clock = clock
        self._pending: deque[tuple[int, Any]] = deque()
        self._last: Any | None = None
        self._time_ns = 0
        self._closed = False
        self.indices: list[int] = []
        self.times_ns: list[int] = []

    def mark(self, index: int) -> None:
        """Tie the mark with this index to an event; without a free one the mark keeps host time only."""
        event = None if self._closed else self._clock.event()
        if event is not None:
            self._pending.append((index, event))

    def poll(self) -> None:
        """Read the events that are ready, oldest first, without waiting for any."""
        clock, pending = self._clock, self._pending
        while pending and clock.ready(pending[0][1]):
            index, event = pending.popleft()
            if self._last is not None:
                # Neighbours only: the float32 milliseconds of an event pair lose microseconds over minutes.
                self._time_ns += clock.elapsed_ns(self._last, event)
                clock.release(self._last)
            self._last = event
            self.indices.append(index)
            self.times_ns.append(self._time_ns)

    def give_back(self) -> None:
        """Return every event to the pool, read or not, and take no more."""
        self._closed = True
        for _, event in self._pending:
            self._clock.release(event)
        self._pending.clear()
        if self._last is not None:
            self._clock.release(self._last)
            self._last = None

    def times(self, marks: int) -> np.ndarray:
        """[marks] device time of each mark, `NO_TIME` where it has none."""
        times = np.full(marks, NO_TIME, np.int64)
        times[self.indices] = self.times_ns
        return times


@dataclass
class _Region:
    """What belongs to one region and is thrown away by the next `start`."""

    chunks: list[np.ndarray] = field(default_factory=list)
    packed: int = 0
    cpu_ns: int = 0
    moments: list[Moment] = field(default_factory=list)
    delays_ns: list[int | None] = field(default_factory=list)
    stopped: bool = False


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


class Recorder:
    """Records the iterations of a region; the object handed to a workload's `step`.

    `start`, then for each iteration the step and `lap`, then `stop` and `series`. Of one thread only. Outside
    a region phases may be marked too, as a warm-up does: that is forgotten by `start`, and takes no events of
    the device.

    Parameters
    ----------
    clock : where times and events come from
    capacity : marks after which the list is packed, between iterations
    """

    def __init__(self, clock: HostClock, capacity: int = CAPACITY) -> None:
        self._clock = clock
        self._now = clock.now_ns
        # Times and codes alternate in one list: appending two integers is the cheapest mark there is, an
        # iteration of any length fits, and integers, unlike tuples, never wake the garbage collector.
        self._marks: list[int] = []
        self._put = self._marks.append
        self._limit = 2 * capacity
        self._times_device = isinstance(clock, EventClock) and clock.times_device
        self._device: _DeviceMarks | None = None
        self._phases: dict[str, _Phase | _DevicePhase] = {}
        self._region = _Region()

    def phase(self, name: str) -> _Phase | _DevicePhase:
        """Mark a named part of the iteration, as a context manager; never inside compiled code."""
        try:
            return self._phases[name]
        except KeyError:
            kind = _DevicePhase if self._times_device else _Phase
            return self._phases.setdefault(name, kind(self, len(self._phases) + 1))

    def start(self) -> None:
        """Begin a region with the device's queue empty; forgets the region before."""
        self._marks.clear()  # in place: the phases hold on to this list
        self._region = _Region()
        if self._device is not None:
            self._device.give_back()
        self._device = (
            _DeviceMarks(self._clock) if isinstance(self._clock, EventClock) and self._times_device else None
        )
        self._clock.synchronize()
        self._region.moments.append(self._clock.usage())
        self._region.cpu_ns = -self._clock.cpu_ns()
        # Last, and first at the end: a delay between a reading and its mark is none of the region's.
        self._region.delays_ns.append(self._clock.delay_ns())
        self._mark(BOUNDARY)

    def lap(self) -> None:
        """End an iteration and begin the next."""
        if self._device is None:
            put = self._put
            put(self._now())
            put(BOUNDARY)
        else:
            self._device.poll()  # before the mark, which may need one of the events that come back
            self._mark(BOUNDARY)
        if len(self._marks) >= self._limit:
            self._pack()

    def stop(self) -> None:
        """End the region once the device has done all it was given."""
        region, device = self._region, self._device
        if device is not None:
            device.poll()
            # Before the synchronisation, so that no event is left to wait for after it.
            device.mark(self._mark_count())
        self._clock.synchronize()
        self._put(self._now())
        self._put(BOUNDARY)
        region.delays_ns.append(self._clock.delay_ns())
        region.cpu_ns += self._clock.cpu_ns()
        region.moments.append(self._clock.usage())
        region.stopped = True
        if device is not None:
            device.poll()
            device.give_back()

    def series(self) -> Series:
        """What was recorded between `start` and `stop`.

        Raises
        ------
        RuntimeError
            The region has not been started and stopped.
        """
        if not self._region.stopped:
            raise RuntimeError(
                "the recorder has no finished region; call start, lap after each iteration, and stop first"
            )
        self._pack()
        region, marks = self._region, np.concatenate(self._region.chunks)
        device_ns = self._device.times(len(marks)) if self._device else None
        usage = replace(Usage.between(*region.moments), own_delay_ns=_grown(*region.delays_ns))
        return series_of(marks, device_ns, region.cpu_ns, usage, tuple(self._phases))

    def _mark(self, code: int) -> None:
        put = self._put
        put(self._now())
        put(code)
        if self._device is not None:
            self._device.mark(self._mark_count() - 1)

    def _mark_count(self) -> int:
        return self._region.packed + len(self._marks) // 2

    def _pack(self) -> None:
        """Move the marks into an array [marks, (time, code)]; events under way keep their index."""
        region = self._region
        chunk = np.array(self._marks, np.int64).reshape(-1, 2)
        region.chunks.append(chunk)
        region.packed += len(chunk)
        self._marks.clear()
