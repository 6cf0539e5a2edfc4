"""Memory of a slice in facts and words, with and without a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from perfsweep.pipelines.profiling.memory import Memory, holders
from perfsweep.pipelines.profiling.tool import Measured
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import MemoryCourse, read_course

MEASURED = Measured(1.0, {}, 1)
MB = 10**6


def course(reserved: int, phases: int = 1) -> MemoryCourse:
    names = [f"p{number}" for number in range(phases)]
    return MemoryCourse(
        allocated_ns=np.array([0, 2_500_000]),
        allocated_bytes=np.array([MB, 3 * MB]),
        sampled_ns=np.array([0, 1]),
        reserved_bytes=np.array([0, reserved]),
        host_bytes=np.array([1024 * MB, 2048 * MB]),
        iteration_ns=np.array([5]),
        phase_names=np.array(names),
        phase_start_ns=np.zeros(phases, int),
        phase_end_ns=np.full(phases, 2_500_000),
    )


class Allocator:
    """Stands for `torch.cuda.memory`."""

    def __init__(self) -> None:
        self.asked = list[Any]()

    def _record_memory_history(self, enabled: str | None = "all", *, max_entries: int = 0) -> None:
        self.asked.append((enabled, max_entries))

    def _snapshot(self) -> dict[str, Any]:
        return {"segments": [{"total_size": 4 * MB, "blocks": []}, {"total_size": 2 * MB}]}


def finished(folder: Path, found: MemoryCourse | None, allocator: Allocator | None = None) -> Any:
    tool = Memory(ProfileConfig(tool="memory"), folder, allocator)
    tool._course = found
    tool._allocator = allocator
    if allocator:
        tool._snapshot = allocator._snapshot()
    return tool.finish(MEASURED)


def test_on_a_host_it_is_what_was_allocated_above_what_there_was(tmp_path: Path) -> None:
    found = finished(tmp_path, course(reserved=0))
    assert found.findings == (
        "at most 3.0 MB allocated above what there was before, 2.5 ms into the slice; host 2,048.0 MB",
        "peak by phase: p0 3.0 MB",
    )
    assert dict(found.facts) == {
        "peak_allocated_bytes": 3.0 * MB,
        "peak_host_bytes": 2048.0 * MB,
        "peak_reserved_bytes": 0.0,
        "peak_bytes p0": 3.0 * MB,
    }
    assert found.costs == () and read_course(tmp_path) is not None


def test_who_holds_most_comes_first_and_blocks_that_are_free_are_nobodys() -> None:
    def block(size: int, file: str, state: str = "active_allocated") -> dict[str, Any]:
        return {"size": size, "state": state, "frames": [{"filename": file, "line": 3, "name": "f"}]}

    blocks = [
        block(1, "/x/y/small.py"),
        block(5, "/x/y/large.py"),
        block(9, "/x/y/free.py", "inactive"),
        block(2, "/x/native.cpp"),
    ]
    found = [(cost.where, cost.bytes) for cost in holders({"segments": [{"blocks": blocks}]})]
    assert found == [("y/large.py:3", 5.0), ("", 2.0), ("y/small.py:3", 1.0)]
