"""Clocks: host time, and the device's own time where there is one.

Nothing else calls torch's synchronise, event or memory functions, because without a device they raise instead
of doing nothing.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from perfsweep.pipelines.trial.machine import gpus, usage
from perfsweep.pipelines.trial.machine.usage import Moment
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import UnsupportedHere

EVENTS = 512
"""Events a device clock creates: some forty iterations of a dozen marks may be under way."""

CONTEXT_BYTES = 600 * 2**20
"""What a process with torch's kernels takes of a GPU next to its tensors, by experience 300 to 700 MB."""

ACCELERATORS = ("cuda", "xpu", "mtia", "npu", "hpu")
"""Modules of torch that say whether this process has initialised them, and what its tensors take there."""

_STATUS = Path("/proc/self/status")
_ROLLUP = Path("/proc/self/smaps_rollup")
_CLEAR_REFS = Path("/proc/self/clear_refs")


class HostClock:
    """Time and memory of this process; there is no device to wait for."""

    now_ns = staticmethod(time.perf_counter_ns)
    cpu_ns = staticmethod(time.process_time_ns)
    delay_ns = staticmethod(usage.delay_ns)
    usage = staticmethod(usage.moment)

    times_device = False
    """Whether there is a device whose time line events mark."""

    def find_devices(self) -> None:
        """Look, after warm-up, where this process computes.

        Raises
        ------
        UnsupportedHere
            On a device whose time line is not this clock's.
        """
        if held := tensors_on():
            raise UnsupportedHere(_untimed(held))

    def synchronize(self) -> None:
        """Wait until the device has done all it was given: nothing to wait for here."""

    def event(self) -> Any | None:
        """Mark this point on the device's time line: there is none here."""
        return None

    def reset_peak(self) -> None:
        """Start the peak of memory again.

        Where the kernel refuses, as in a hardened container, the peak stays that of the whole process.
        """
        # 5 resets the high-water mark of resident memory, unprivileged; ru_maxrss may not follow it.
        with contextlib.suppress(OSError):
            _CLEAR_REFS.write_text("5")

    def forget_warm_up(self) -> None:
        """Start the peak again: what compiling took in warm-up is no memory of the arm."""
        self.reset_peak()

    def peak_bytes(self) -> int:
        """Highest resident memory since `reset_peak`, in bytes; without /proc that of the whole process."""
        try:
            lines = _STATUS.read_text().splitlines()
        except OSError:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

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


def tensors_on() -> dict[tuple[str, int], int]:
    """Most bytes that tensors of this process took on each accelerator, by torch's name for it and number.

    An accelerator that the process has not initialised is not asked.
    """
    found: dict[tuple[str, int], int] = {}
    for kind in ACCELERATORS:
        module = getattr(torch, kind, None)
        if module is not None and module.is_initialized():
            found |= {(kind, number): module.max_memory_allocated(number) for number in _numbers(module)}
    return {place: size for place, size in found.items() if size}


def _numbers(module: Any) -> range:
    return range(module.device_count())


def _untimed(held: dict[tuple[str, int], int]) -> str:
    """Say that a process computes where no clock of ours is."""
    hip = torch.version.hip is not None
    names = [
        f"{'hip' if hip and kind == 'cuda' else kind}:{number} ({size / 1e6:.1f} MB)"
        for (kind, number), size in held.items()
    ]
    seen = ", ".join(gpu.name for gpu in gpus.visible()) or "that there is no GPU"
    remedy = "only NVIDIA GPUs and CPUs are timed: run your code on one of them"
    if any(kind == "cuda" for kind, _ in held) and not hip:
        remedy = (
            "in a container, let the driver in whole (NVIDIA_DRIVER_CAPABILITIES=compute,utility); or run"
            " your code on the CPU (CUDA_VISIBLE_DEVICES=)"
        )
    return (
        f"your code computes on {', '.join(names)}, which perfsweep cannot time here: NVML says {seen};"
        f" {remedy}"
    )


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

    def peak_bytes(self) -> int:
        """Highest resident memory of any of them, in bytes."""
        return self._child_usage().ru_maxrss * 1024


class EventClock(HostClock):
    """A clock whose device can mark its own time line with events, taken from a pool that never grows."""

    times_device = True

    def __init__(self, pool: list[Any]) -> None:
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

    def ready(self, event: Any) -> bool:
        """Whether the device has passed the event. Never waits."""
        return event.query()

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Device time between two events that are both ready; resolution about half a microsecond."""
        return round(start.elapsed_time(end) * 1e6)

    def _record(self, event: Any) -> None:
        """Put the event into the current stream."""
        event.record()


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
        self._used = [self.device.index]
        super().__init__([torch.Event(device=self.device, enable_timing=True) for _ in range(events)])
        # The driver creates an event at its first record: that cost must not fall into the first iterations.
        for event in self._pool:
            event.record()
        self.synchronize()

    def synchronize(self) -> None:
        """Wait until all streams of the devices in use have done all they were given."""
        for number in self._used:
            self._accelerator.synchronize(number)

    def find_devices(self) -> None:
        """Look, after warm-up, which devices this process uses; events stay with the one that is its own.

        Raises
        ------
        UnsupportedHere
            This process's tensors lie on an accelerator of another kind, or all on other devices of this
            one.
        """
        held, own = tensors_on(), self.device
        if others := {place: size for place, size in held.items() if place[0] != own.type}:
            raise UnsupportedHere(_untimed(others))
        numbers = [number for _, number in held]
        if numbers and own.index not in numbers:
            raise UnsupportedHere(
                f"your code computes on {own.type}:{numbers[0]}, and the clock times {own}, torch's current"
                f" device: call torch.{own.type}.set_device({numbers[0]}) before it computes, or choose the"
                " GPU by CUDA_VISIBLE_DEVICES"
            )
        self._used = sorted({own.index, *numbers})

    def reset_peak(self) -> None:
        """Reset the peaks of all devices' memory."""
        for number in _numbers(self._accelerator):
            self._accelerator.reset_peak_memory_stats(number)

    def peak_bytes(self) -> int:
        """Highest device memory held by tensors since `reset_peak`, in bytes: the sum of all devices' peaks.

        These need not fall together, so that several devices never hold more than this at once.
        """
        return sum(map(self._accelerator.max_memory_allocated, _numbers(self._accelerator)))

    def forget_warm_up(self) -> None:
        """Keep the peak: a CUDA graph allocates while it is captured, and replays in what it has kept."""

    def taken_bytes(self) -> int:
        """Memory that the allocator has reserved at most, with the context that each process has of a GPU."""
        return self._reserved_bytes() + CONTEXT_BYTES * len(self._used)

    def held(self) -> dict[str, float]:
        """What the allocator reserved at most: it never gives back what a graph's private pool holds."""
        return {"peak_reserved_bytes": float(self._reserved_bytes())}

    def _reserved_bytes(self) -> int:
        return sum(map(self._accelerator.max_memory_reserved, _numbers(self._accelerator)))

    def used_devices(self) -> list[int]:
        """Numbers of the devices, among the visible ones, that hold tensors of this process; ours always."""
        return list(self._used)


def clock_for(device: Device) -> HostClock:
    """The clock of a device.

    Raises
    ------
    UnsupportedHere
        torch has no such accelerator in this process.
    """
    return HostClock() if device.type == "cpu" else DeviceClock(device.type)
