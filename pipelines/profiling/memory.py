"""CUDA memory: who holds it after the slice, and the allocations of the slice."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pipelines.profiling.tool import Findings, Measured, Tick, Tool, nothing
from pipelines.store.options import ProfileConfig
from pipelines.store.profiles import Cost
from pipelines.trial.memory_snapshot import Allocator, is_oom, keep_on_oom

SNAPSHOT = "snapshot.pickle"
EVENTS = 100_000
"""Allocations and releases that are remembered; each takes some kilobytes of the file, stacks included."""


class RecordingAllocator(Allocator, Protocol):
    """The part of `torch.cuda.memory` that is used here."""

    def _record_memory_history(self, enabled: str | None = "all", *, max_entries: int = EVENTS) -> None:
        """Begin to remember allocations; None: stop."""
        ...


class Memory(Tool):
    """Has blocks know the code that asked for them, from set-up on; snapshots after the slice and on OOM."""

    def __init__(
        self, options: ProfileConfig, folder: Path, allocator: RecordingAllocator | None = None
    ) -> None:
        super().__init__(options, folder)
        self._allocator = allocator or _cuda()
        self._snapshot: dict[str, Any] = {}

    @contextmanager
    def around(self) -> Iterator[None]:
        self._allocator._record_memory_history("all", max_entries=EVENTS)
        try:
            yield
        except BaseException as error:
            if is_oom(error):
                keep_on_oom(self.folder, self._allocator)
            raise
        finally:
            self._allocator._record_memory_history(None)

    @contextmanager
    def resting(self) -> Iterator[None]:
        # Ends the history, which so is that of the last repetition; blocks keep the code that asked for them.
        self._allocator._record_memory_history(None)
        try:
            yield
        finally:
            self._allocator._record_memory_history("all", max_entries=EVENTS)

    @contextmanager
    def block(self, lead: int, length: int | None) -> Iterator[Tick]:
        yield nothing
        self._snapshot = self._allocator._snapshot()

    def finish(self, measured: Measured) -> Findings:
        (self.folder / SNAPSHOT).write_bytes(pickle.dumps(self._snapshot))
        costs = holders(self._snapshot)
        held = sum(cost.bytes or 0.0 for cost in costs)
        reserved = float(sum(segment["total_size"] for segment in self._snapshot.get("segments", ())))
        found = (
            f"{held / 2**20:,.1f} MB in use of {reserved / 2**20:,.1f} MB reserved after the slice; open"
            f" {SNAPSHOT} at "
        )
        facts = (("in_use_bytes", held), ("reserved_bytes", reserved))
        return Findings(costs, facts, (f"{found}https://pytorch.org/memory_viz",))


def _cuda() -> RecordingAllocator:
    import torch

    return torch.cuda.memory  # type: ignore[return-value]  # its functions take more than is used here


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
