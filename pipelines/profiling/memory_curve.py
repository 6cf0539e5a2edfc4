"""Records memory along the iterations of a slice: every allocation, and samples of what no event tells.

torch's profiler reports each allocation and release with its time, on hosts and devices alike. What the
allocator of a device has reserved, and the resident memory of the process, are read at both ends of each
phase, and by a thread in between.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from perfsweep.pipelines.store.memory_course import MemoryCourse

_STATM = Path("/proc/self/statm")
_MEMORY_EVENT = "[memory]"


class CourseRecorder:
    """Records one repetition of a slice.

    Parameters
    ----------
    interval_s : seconds between two samples within phases
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._samples: list[tuple[int, int, int]] = []
        self._phases: list[list[Any]] = []
        self._open: list[str] = []
        self._iteration_ns: list[int] = []
        self._profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self._base = 0
        self._began = self._ended = 0

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Around the iterations."""
        stop = threading.Event()
        sampler = threading.Thread(target=self._sample_until, args=(stop,), daemon=True)
        self._base = _allocated_bytes()
        self._profiler.start()
        self._began = time.time_ns()
        sampler.start()
        try:
            yield
        finally:
            self._ended = time.time_ns()
            stop.set()
            sampler.join()
            self._profiler.stop()

    def tick(self) -> None:
        """An iteration has ended."""
        self._iteration_ns.append(time.time_ns())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Around a phase of an iteration."""
        self._open.append(name)
        entry = ["/".join(self._open), self._sample(), 0]
        self._phases.append(entry)
        try:
            yield
        finally:
            entry[2] = self._sample()
            self._open.pop()

    def _sample_until(self, stop: threading.Event) -> None:
        while not stop.wait(self._interval_s):
            self._sample()

    def _sample(self) -> int:
        """Read what no event tells; returns when."""
        now = time.time_ns()
        self._samples.append((now, _reserved_bytes(), _resident_bytes()))
        return now

    def course(self) -> MemoryCourse:
        """What was recorded, once it is over."""
        times, changes = _changes(self._profiler, torch.accelerator.is_available())
        # The profiler takes a while to start: what it shows of that is no part of an iteration.
        began = self._phases[0][1] if self._phases else self._began
        base = self._base + int(changes[(times >= self._began) & (times < began)].sum())
        inside = (times >= began) & (times <= self._ended)
        samples = np.array(sorted(self._samples), np.int64).reshape(-1, 3)
        return MemoryCourse(
            allocated_ns=np.concatenate([[0], times[inside] - began]),
            allocated_bytes=base + np.concatenate([[0], np.cumsum(changes[inside])]),
            sampled_ns=samples[:, 0] - began,
            reserved_bytes=samples[:, 1],
            host_bytes=samples[:, 2],
            iteration_ns=np.array(self._iteration_ns, np.int64) - began,
            phase_names=np.array([name for name, _, _ in self._phases], dtype=np.str_),
            phase_start_ns=np.array([start for _, start, _ in self._phases], np.int64) - began,
            phase_end_ns=np.array([end for _, _, end in self._phases], np.int64) - began,
        )


def _changes(profiler: profile, on_device: bool) -> tuple[np.ndarray, np.ndarray]:
    """Times [N] in ns since the epoch and bytes [N] of each allocation (above zero) and release, in order."""
    results: Any = profiler.profiler.kineto_results if profiler.profiler else None
    found = results.events() if results else ()
    own = [
        (event.start_ns(), event.nbytes())
        for event in found
        if event.name() == _MEMORY_EVENT and (event.device_type().name != "CPU") == on_device
    ]
    table = np.array(sorted(own, key=lambda pair: pair[0]), np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _on_device(question: Callable[[], int]) -> int:
    """The answer of a device's allocator, zero where there is none."""
    return question() if torch.accelerator.is_available() else 0


def _allocated_bytes() -> int:
    return _on_device(torch.accelerator.memory_allocated)


def _reserved_bytes() -> int:
    return _on_device(torch.accelerator.memory_reserved)


def _resident_bytes() -> int:
    """Resident memory of this process; zero where the kernel does not tell."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
