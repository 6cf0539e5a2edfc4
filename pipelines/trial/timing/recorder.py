"""The recorder that a workload's `step` marks its phases on, and the series that its marks become.

Record now, resolve later: a mark puts a time and a code into one list, device events are read only once they
are ready, and phases are worked out after the region. Nothing here waits for the device inside the region.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from perfsweep.pipelines.store.trial_files import write_iterations
from perfsweep.pipelines.trial.machine.usage import Moment, Usage
from perfsweep.pipelines.trial.timing.clock import EventClock, HostClock

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
        self._events = clock if isinstance(clock, EventClock) and clock.times_device else None
        self._device: _DeviceMarks | None = None
        self._phases: dict[str, _Phase | _DevicePhase] = {}
        self._region = _Region()

    def phase(self, name: str) -> _Phase | _DevicePhase:
        """Mark a named part of the iteration, as a context manager; never inside compiled code."""
        try:
            return self._phases[name]
        except KeyError:
            kind = _DevicePhase if self._events else _Phase
            return self._phases.setdefault(name, kind(self, len(self._phases) + 1))

    def start(self) -> None:
        """Begin a region with the device's queue empty; forgets the region before."""
        self._marks.clear()  # in place: the phases hold on to this list
        self._region = _Region()
        if self._device is not None:
            self._device.give_back()
        self._device = _DeviceMarks(self._events) if self._events else None
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


NO_TIME = -1
"""Value of a device series for an iteration whose events were not all available."""

BOUNDARY = 0
"""Code of a mark between two iterations; +c opens the phase with code c and -c closes it."""


@dataclass(frozen=True)
class Series:
    """What was recorded of a region of N iterations; all times are int64 nanoseconds.

    Attributes
    ----------
    start_ns, wall_ns : [N] start of each iteration, and the time to the next start; the last ends when the
        region does, so the walls add up to `region_ns`
    device_ns : [N] between the device's marks at the ends of each iteration, `NO_TIME` where one is missing;
        None without a device
    host_phases, device_phases : [N] for each phase; a phase inside another is named ``outer/inner`` and its
        time is part of the outer phase's. On an asynchronous device the host's waiting counts in the phase
        that blocks next, so the device's times are reported.
    region_ns, region_cpu_ns : wall time, and CPU time of the process, between the two synchronisations
    usage : what the kernel counted meanwhile
    dropped : iterations without device time
    """

    start_ns: np.ndarray
    wall_ns: np.ndarray
    device_ns: np.ndarray | None
    host_phases: dict[str, np.ndarray]
    device_phases: dict[str, np.ndarray]
    region_ns: int
    region_cpu_ns: int
    usage: Usage
    dropped: int

    def judged_ns(self, cadence: int) -> np.ndarray:
        """Times by which a region may be judged steady: the device's that could be had, else the host's.

        A host that never waits runs ahead until the device's queue is full, and only then at its speed. With
        gaps in the device's times nothing is known of whole cadences.
        """
        if self.device_ns is None:
            return self.wall_ns
        if self.dropped and cadence > 1:
            return self.device_ns[:0]
        return np.maximum(self.device_ns[self.device_ns != NO_TIME], 1)


def series_of(
    marks: np.ndarray, device_ns: np.ndarray | None, cpu_ns: int, usage: Usage, names: Sequence[str]
) -> Series:
    """Times of iterations and phases; the marks begin with a boundary and have one after each iteration.

    Parameters
    ----------
    marks : [M, 2] int64 time and code; the last is a boundary too, at the end of the region
    device_ns : [M] device time of each mark, `NO_TIME` where it has none; None without a device
    cpu_ns, usage : CPU time of the process over the region, and what the kernel counted
    names : name of the phase with code 1, 2, ...
    """
    times, codes = marks[:, 0], marks[:, 1]
    ends = _iteration_ends(np.flatnonzero(codes == BOUNDARY))
    iterations_ns, device_phases, dropped = None, {}, 0
    if device_ns is not None:
        complete = _complete(device_ns != NO_TIME, ends)
        iterations_ns = np.where(complete, np.diff(device_ns[ends]), NO_TIME)
        phases = _phase_times(device_ns, codes, ends, names)
        device_phases = {name: np.where(complete, phase, NO_TIME) for name, phase in phases.items()}
        dropped = int(np.sum(~complete))
    return Series(
        start_ns=times[ends[:-1]],
        wall_ns=np.diff(times[ends]),
        device_ns=iterations_ns,
        host_phases=_phase_times(times, codes, ends, names),
        device_phases=device_phases,
        region_ns=int(times[-1] - times[0]),
        region_cpu_ns=cpu_ns,
        usage=usage,
        dropped=dropped,
    )


def _iteration_ends(boundaries: np.ndarray) -> np.ndarray:
    """[N + 1] of the N + 2 boundaries: the last iteration ends with the region, so its lap is no end."""
    return np.delete(boundaries, -2) if len(boundaries) > 2 else boundaries[:1]


def _complete(present: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """[N] whether an iteration has all of its marks, those at both ends included."""
    missing = np.concatenate([[0], np.cumsum(~present)])
    return missing[ends[1:] + 1] == missing[ends[:-1]]


def _phase_times(
    times: np.ndarray, codes: np.ndarray, ends: np.ndarray, names: Sequence[str]
) -> dict[str, np.ndarray]:
    """[N] time of each phase, by replaying the marks on a stack.

    A phase that is open across the end of an iteration is billed to both, each for its part.
    """
    kept = codes != BOUNDARY
    if not kept.any():
        return {}
    kept[ends] = True
    replay = _Replay(len(ends) - 1, names)
    for time_ns, code in zip(times[kept].tolist(), codes[kept].tolist(), strict=True):
        if code == BOUNDARY:
            replay.boundary(time_ns)
        elif code > 0:
            replay.open(code, time_ns)
        else:
            replay.close(-code, time_ns)
    return {path: np.array(total, np.int64) for path, total in replay.totals.items()}


class _Replay:
    """The stack of open phases, and the time billed to each in each iteration."""

    def __init__(self, iterations: int, names: Sequence[str]) -> None:
        self.totals: dict[str, list[int]] = {}
        self._names = names
        self._iterations = iterations
        self._iteration = -1
        self._stack: list[tuple[int, str]] = []
        self._since: list[int] = []

    def open(self, code: int, time_ns: int) -> None:
        name = self._names[code - 1]
        self._stack.append((code, f"{self._stack[-1][1]}/{name}" if self._stack else name))
        self._since.append(time_ns)

    def close(self, code: int, time_ns: int) -> None:
        for depth in range(len(self._stack) - 1, -1, -1):
            if self._stack[depth][0] == code:
                self._bill(depth, time_ns)
                del self._stack[depth], self._since[depth]
                return
        # No match: the phase was opened before the region began and is no part of it.

    def boundary(self, time_ns: int) -> None:
        for depth in range(len(self._stack)):
            self._bill(depth, time_ns)
        self._iteration += 1

    def _bill(self, depth: int, time_ns: int) -> None:
        path = self._stack[depth][1]
        if path not in self.totals:
            self.totals[path] = [0] * self._iterations
        self.totals[path][self._iteration] += time_ns - self._since[depth]
        self._since[depth] = time_ns


def write_regions(
    folder: Path,
    series: Sequence[Series],
    warmup_ns: list[int],
    logged: Mapping[str, np.ndarray],
    every: Mapping[str, np.ndarray],
) -> None:
    """All series of the region, regions one after the other, and those of `every` rank."""
    parts = [_arrays(part) for part in series]
    # A phase that no iteration of a part entered is unknown there.
    names = dict.fromkeys(name for part in parts for name in part)
    lacking = [np.zeros(len(part.wall_ns), np.int64) for part in series]
    arrays = {
        name: np.concatenate([part.get(name, none) for part, none in zip(parts, lacking, strict=True)])
        for name in names
    }
    arrays["warmup_wall_ns"] = np.asarray(warmup_ns, dtype=np.int64)
    offset = time.time_ns() - time.perf_counter_ns()
    arrays["epoch_ns"] = np.asarray(
        [int(arrays["start_ns"][0]) + offset] if len(arrays["start_ns"]) else [0], dtype=np.int64
    )
    arrays |= {f"log_{name}": values for name, values in logged.items()} | dict(every)
    write_iterations(folder, arrays)


def _arrays(series: Series) -> dict[str, np.ndarray]:
    arrays = {"start_ns": series.start_ns, "wall_ns": series.wall_ns}
    if series.device_ns is not None:
        arrays["device_ns"] = series.device_ns
    arrays |= {f"host_{name}": values for name, values in series.host_phases.items()}
    return arrays | {f"device_{name}": values for name, values in series.device_phases.items()}
