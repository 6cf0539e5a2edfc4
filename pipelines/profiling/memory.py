"""Memory: its course along the slice, and on CUDA who holds it afterwards, and the slice's allocations."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from perfsweep.pipelines.profiling.memory_curve import CourseRecorder
from perfsweep.pipelines.profiling.tool import Findings, Measured, Tick, Tool
from perfsweep.pipelines.store.memory_course import MemoryCourse, write_course
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import Cost
from perfsweep.pipelines.trial.failures import Allocator, is_oom, keep_on_oom

SNAPSHOT = "snapshot.pickle"
EVENTS = 100_000
"""Allocations and releases that are remembered; each takes some kilobytes of the file, stacks included."""
SHOWN_PHASES = 4


class RecordingAllocator(Allocator, Protocol):
    """The part of `torch.cuda.memory` that is used here."""

    def _record_memory_history(self, enabled: str | None = "all", *, max_entries: int = EVENTS) -> None:
        """Begin to remember allocations; None: stop."""
        ...


class Memory(Tool):
    """Records memory along the slice; on CUDA blocks know the code that asked for them, from set-up on.

    Snapshots are taken after the slice and on OOM. `allocator` is None where there is no CUDA.
    """

    def __init__(
        self, options: ProfileConfig, folder: Path, allocator: RecordingAllocator | None = None
    ) -> None:
        super().__init__(options, folder)
        self._allocator = allocator or _cuda()
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
            f"{held / 2**20:,.1f} MB in use of {reserved / 2**20:,.1f} MB reserved after the slice; open"
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
    lines = [f"at most {peak / 2**20:,.1f} MB {over}, {at_ns / 1e6:,.3g} ms into the slice; host {_mb(host)}"]
    if peaks := list(course.phase_peaks().items()):
        named = ", ".join(f"{phase} {_mb(size)}" for phase, size in peaks[:SHOWN_PHASES])
        lines.append(f"peak by phase: {named}")
    return facts, tuple(lines)


def _mb(size: float) -> str:
    return f"{size / 2**20:,.1f} MB"


def _cuda() -> RecordingAllocator | None:
    import torch

    return torch.cuda.memory if torch.cuda.is_available() else None  # type: ignore[return-value]


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
