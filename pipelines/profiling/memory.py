"""Memory: its course along the slice, and on CUDA who holds it afterwards, and the slice's allocations.

Memory along the iterations: torch's profiler reports each allocation and release with its time, on hosts and
devices alike. What the allocator of a device has reserved, and the resident memory of the process, are read
at both ends of each phase, and by a thread in between.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from perfsweep.pipelines.profiling.tool import Findings, Measured, Tick, Tool
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import Cost, MemoryCourse, write_course
from perfsweep.pipelines.trial.failures import is_oom, keep_on_oom
from perfsweep.pipelines.units import MB

SNAPSHOT = "snapshot.pickle"
EVENTS = 100_000
"""Allocations and releases that are remembered; each takes some kilobytes of the file, stacks included."""
SHOWN_PHASES = 4


class Memory(Tool):
    """Records memory along the slice; on CUDA blocks know the code that asked for them, from set-up on.

    Snapshots are taken after the slice and on OOM. `allocator` is `torch.cuda.memory` unless another is
    given, and None where there is no CUDA.
    """

    def __init__(self, options: ProfileConfig, folder: Path, allocator: Any = None) -> None:
        super().__init__(options, folder)
        self._allocator: Any = allocator or (torch.cuda.memory if torch.cuda.is_available() else None)
        self._snapshot: dict[str, Any] = {}
        self._recorder: CourseRecorder | None = None
        self._course: MemoryCourse | None = None

    @contextmanager
    def around(self) -> Iterator[None]:
        self._remember("all")
        try:
            yield
        except BaseException as error:
            if is_oom(error) and self._allocator is not None:
                keep_on_oom(self.folder, self._allocator)
            raise
        finally:
            self._remember(None)

    @contextmanager
    def resting(self) -> Iterator[None]:
        # Ends the history, which so is that of the last repetition; blocks keep the code that asked for them.
        self._remember(None)
        try:
            yield
        finally:
            self._remember("all")

    def _remember(self, enabled: str | None) -> None:
        if self._allocator is not None:
            self._allocator._record_memory_history(enabled, max_entries=EVENTS)

    @contextmanager
    def block(self, lead: int, length: int | None) -> Iterator[Tick]:
        self._recorder = CourseRecorder(self.options.interval_s)
        with self._recorder.recording():
            yield self._recorder.tick
        self._course = self._recorder.course()
        self._recorder = None
        if self._allocator is not None:
            self._snapshot = self._allocator._snapshot()

    def phase(self, name: str) -> AbstractContextManager[None] | None:
        return None if self._recorder is None else self._recorder.phase(name)

    def finish(self, measured: Measured) -> Findings:
        facts, findings = _of_course(self.folder, self._course)
        if self._allocator is None:
            return Findings((), facts, findings)
        (self.folder / SNAPSHOT).write_bytes(pickle.dumps(self._snapshot))
        costs = holders(self._snapshot)
        held = sum(cost.bytes or 0.0 for cost in costs)
        reserved = float(sum(segment["total_size"] for segment in self._snapshot.get("segments", ())))
        found = (
            f"{held / MB:,.1f} MB in use of {reserved / MB:,.1f} MB reserved after the slice; open"
            f" {SNAPSHOT} at https://pytorch.org/memory_viz"
        )
        own = (("in_use_bytes", held), ("reserved_bytes", reserved))
        return Findings(costs, (*own, *facts), (*findings, found))


def _of_course(
    folder: Path, course: MemoryCourse | None
) -> tuple[tuple[tuple[str, float | str | None], ...], tuple[str, ...]]:
    """Write the course of the last repetition; its peaks as facts, and in words."""
    if course is None:
        return (), ()
    write_course(folder, course)
    peak, at_ns = course.peak_at()
    host = float(course.host_bytes.max(initial=0))
    facts = (
        ("peak_allocated_bytes", float(peak)),
        ("peak_host_bytes", host),
        ("peak_reserved_bytes", float(course.reserved_bytes.max(initial=0))),
        *((f"peak_bytes {phase}", float(size)) for phase, size in course.phase_peaks().items()),
    )
    over = "held by tensors" if course.on_device else "allocated above what there was before"
    lines = [f"at most {peak / MB:,.1f} MB {over}, {at_ns / 1e6:,.3g} ms into the slice; host {_mb(host)}"]
    if peaks := list(course.phase_peaks().items()):
        named = ", ".join(f"{phase} {_mb(size)}" for phase, size in peaks[:SHOWN_PHASES])
        lines.append(f"peak by phase: {named}")
    return facts, tuple(lines)


def _mb(size: float) -> str:
    return f"{size / MB:,.1f} MB"


def holders(snapshot: Mapping[str, Any]) -> tuple[Cost, ...]:
    """Bytes that are in use by the code that asked for them, most first; calls are blocks."""
    held: dict[tuple[str, str], list[int]] = {}
    for block in _blocks(snapshot):
        totals = held.setdefault(_asked_by(block.get("frames") or ()), [0, 0])
        totals[0] += block["size"]
        totals[1] += 1
    most = sorted(held.items(), key=lambda item: -item[1][0])
    return tuple(
        Cost(name=name, where=where, bytes=float(size), calls=float(blocks))
        for (name, where), (size, blocks) in most
    )


def _blocks(snapshot: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for segment in snapshot.get("segments", ()):
        yield from (block for block in segment.get("blocks", ()) if block.get("state") == "active_allocated")


def _asked_by(frames: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """The innermost Python frame outside torch."""
    for frame in frames:
        file = str(frame.get("filename", ""))
        if file.endswith(".py") and "/torch/" not in file:
            return str(frame.get("name", "")), f"{'/'.join(Path(file).parts[-2:])}:{frame.get('line', '')}"
    return "(unknown)", ""


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
        self._base = _on_device(torch.accelerator.memory_allocated)
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
        self._samples.append((now, _on_device(torch.accelerator.memory_reserved), _resident_bytes()))
        return now

    def course(self) -> MemoryCourse:
        """What was recorded, once it has ended."""
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


def _resident_bytes() -> int:
    """Resident memory of this process; zero where the kernel does not tell."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
