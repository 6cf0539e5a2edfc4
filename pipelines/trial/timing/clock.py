"""Clocks: host time, and the device's own time where there is one.

Nothing else calls torch's synchronise, event or memory functions, because without a device they raise instead
of doing nothing. Importing this module does not import torch.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfsweep.pipelines.trial.machine import usage
from perfsweep.pipelines.trial.machine.usage import Moment
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import UnsupportedHere

EVENTS = 512
"""Events a device clock creates: some forty iterations of a dozen marks may be under way."""

CONTEXT_BYTES = 600 * 2**20
"""What a process with torch's kernels takes of a GPU beside its tensors, by experience 300 to 700 MB."""

_STATUS = Path("/proc/self/status")
_ROLLUP = Path("/proc/self/smaps_rollup")
_CLEAR_REFS = Path("/proc/self/clear_refs")


class HostClock:
    """Time and memory of this process; there is no device to wait for."""

    now_ns = staticmethod(time.perf_counter_ns)
    cpu_ns = staticmethod(time.process_time_ns)
    thread_cpu_ns = staticmethod(time.thread_time_ns)
    delay_ns = staticmethod(usage.delay_ns)
    usage = staticmethod(usage.moment)

    times_device = False
    """Whether there is a device whose time line events mark."""

    def __init__(self) -> None:
        self.peak_since_start = True
        """Whether `peak_bytes` covers the life of the process, because its mark was not, or could not be,
        reset."""

    def synchronize(self) -> None:
        """Wait until the device has done all it was given: nothing to wait for here."""

    def event(self) -> Any | None:
        """Mark this point on the device's time line: there is none here."""
        return None

    def reset_peak(self) -> None:
        """Start the peak of memory anew.

        Where the kernel refuses (a hardened container, another system) the peak stays that of the whole
        process and `peak_since_start` says so.
        """
        # 5 resets the high-water mark of resident memory, unprivileged; ru_maxrss may not follow it.
        with contextlib.suppress(OSError):
            _CLEAR_REFS.write_text("5")
            self.peak_since_start = False

    def forget_warm_up(self) -> None:
        """Start the peak anew: what compiling took in warm-up is no memory of the arm."""
        self.reset_peak()

    def peak_bytes(self) -> int:
        """Highest resident memory since `reset_peak`, in bytes."""
        return self.memory_stats()["resident_bytes.peak"]

    def taken_bytes(self) -> int:
        """Memory that the process keeps from others now, in bytes: of what several share only its part."""
        try:
            lines = _ROLLUP.read_text().splitlines()
        except OSError:
            return self.peak_bytes()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))

    def held(self) -> dict[str, float]:
        """Further figures of memory, as counters by name: none here."""
        return {}

    def used_devices(self) -> list[int]:
        """Numbers of the devices, among the visible ones, that hold tensors of this process: none here."""
        return []

    def memory_stats(self) -> dict[str, int]:
        """Resident memory now and at its peak, in bytes, and whether the peak covers the whole process."""
        peak, current = _resident_bytes()
        return {
            "resident_bytes.peak": peak,
            "resident_bytes.current": current,
            "peak_since_start": int(self.peak_since_start),
        }


def _resident_bytes() -> tuple[int, int]:
    """Peak and current resident memory; without /proc both are the peak of the process's whole life."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return peak, peak
    fields = dict(line.split(":", 1) for line in lines if line.startswith(("VmHWM:", "VmRSS:")))
    return tuple(int(fields[name].split()[0]) * 1024 for name in ("VmHWM", "VmRSS"))  # type: ignore[return-value]


class ChildClock(HostClock):
    """Host time, with the CPU time and memory of the processes that do a workload's work.

    The kernel counts what has ended only, and keeps the highest memory of all that ever ran: it cannot be
    reset.

    Parameters
    ----------
    child_usage : what they have used so far
    devices : how many devices they may use
    """

    def __init__(self, child_usage: Callable[[], resource.struct_rusage], devices: int = 0) -> None:
        super().__init__()
        self._child_usage = child_usage
        self._devices = devices

    def cpu_ns(self) -> int:  # type: ignore[override]
        """CPU time so far."""
        used = self._child_usage()
        return round((used.ru_utime + used.ru_stime) * 1e9)

    def usage(self) -> Moment:  # type: ignore[override]
        """Counts so far; of threads that have ended none are kept."""
        return Moment({}, self._child_usage())

    def delay_ns(self) -> int | None:  # type: ignore[override]
        """Unknown of other processes."""
        return None

    def reset_peak(self) -> None:
        """Keep the peak, which is that of the whole trial."""

    def used_devices(self) -> list[int]:
        """Numbers of all devices that are visible: which of them hold tensors of others is not known."""
        return list(range(self._devices))

    def memory_stats(self) -> dict[str, int]:
        """Highest resident memory, and none now: nothing runs between two iterations."""
        peak = self._child_usage().ru_maxrss * 1024
        return {"resident_bytes.peak": peak, "resident_bytes.current": 0, "peak_since_start": 1}


class EventClock(HostClock, ABC):
    """A clock whose device can mark its own time line with events, taken from a pool that never grows."""

    times_device = True

    def __init__(self, pool: list[Any]) -> None:
        super().__init__()
        self._pool = pool

    def event(self) -> Any | None:
        """Mark this point of the current stream; None when every event is still under way."""
        if not self._pool:
            return None
        event = self._pool.pop()
        self._record(event)
        return event

    def release(self, event: Any) -> None:
        """Give an event back; its mark is forgotten."""
        self._pool.append(event)

    @abstractmethod
    def ready(self, event: Any) -> bool:
        """Whether the device has passed the event. Never waits."""

    @abstractmethod
    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Device time between two events that are both ready."""

    @abstractmethod
    def _record(self, event: Any) -> None:
        """Put the event into the current stream."""


class DeviceClock(EventClock):
    """The current accelerator, whichever it is: its events time the stream they are recorded on.

    Parameters
    ----------
    device_type : name of the accelerator as torch spells it, such as ``cuda`` or ``xpu``
    events : size of the pool

    Raises
    ------
    UnsupportedHere
        torch has no such accelerator in this process.
    """

    def __init__(self, device_type: str, events: int = EVENTS) -> None:
        import torch

        found = torch.accelerator.current_accelerator(check_available=True)
        if found is None or found.type != device_type:
            here = f"sees only {found.type}" if found else "sees none"
            raise UnsupportedHere(
                f"device {device_type} was asked for and torch {torch.__version__} {here}; "
                "install a torch build for it, or measure on another device"
            )
        self._accelerator = torch.accelerator
        # All marks of a trial lie on one device: the time between events of two devices has no meaning.
        self.device = torch.device(device_type, torch.accelerator.current_device_index())
        super().__init__([torch.Event(device=self.device, enable_timing=True) for _ in range(events)])
        self._create_events()

    def _create_events(self) -> None:
        # The driver creates an event at its first record: that cost must not fall into the first iterations.
        for event in self._pool:
            event.record()
        self.synchronize()

    def synchronize(self) -> None:
        """Wait until all streams of the device have done all they were given."""
        self._accelerator.synchronize(self.device)

    def ready(self, event: Any) -> bool:
        """Whether the device has passed the event. Never waits."""
        return event.query()

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Device time between two events that are both ready; resolution about half a microsecond."""
        return round(start.elapsed_time(end) * 1e6)

    def _record(self, event: Any) -> None:
        event.record()

    def reset_peak(self) -> None:
        """Start the peaks of device memory anew."""
        self._accelerator.reset_peak_memory_stats(self.device)
        self.peak_since_start = False

    def peak_bytes(self) -> int:
        """Highest device memory held by tensors since `reset_peak`, in bytes."""
        return self._accelerator.max_memory_allocated(self.device)

    def forget_warm_up(self) -> None:
        """Keep the peak: a CUDA graph allocates while it is captured, and replays in what it has kept."""

    def taken_bytes(self) -> int:
        """Memory that the allocator has reserved at most, with the context that every process has."""
        return self._reserved_bytes() + CONTEXT_BYTES

    def held(self) -> dict[str, float]:
        """What the allocator reserved at most: it never gives back what a graph's private pool holds."""
        return {"peak_reserved_bytes": float(self._reserved_bytes())}

    def _reserved_bytes(self) -> int:
        return self._accelerator.max_memory_reserved(self.device)

    def used_devices(self) -> list[int]:
        """Numbers of the devices, among the visible ones, that hold tensors of this process; ours always."""
        every = range(self._accelerator.device_count())
        return [n for n in every if n == self.device.index or self._accelerator.memory_allocated(n)]

    def memory_stats(self) -> dict[str, int]:
        """The allocator's statistics by torch's names; empty before the first allocation."""
        return dict(self._accelerator.memory_stats(self.device))


def clock_for(device: Device) -> HostClock:
    """The clock of a device.

    Raises
    ------
    UnsupportedHere
        torch has no such accelerator in this process.
    """
    return HostClock() if device.type == "cpu" else DeviceClock(device.type)
