"""What profiling tools make of bytes of operators, holders of memory, reasons of breaks, and ceilings."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from perfsweep.pipelines.profiling.memory import EVENTS, Memory, holders
from perfsweep.pipelines.profiling.tool import Measured
from perfsweep.pipelines.profiling.tracing import added, costs
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import Cost, MemoryCourse, read_course
from perfsweep.pipelines.trial.failures import ON_OOM, keep_on_oom

ACTIVE = {"size": 3_000_000, "state": "active_allocated", "frames": [{"filename": "/x/a.py", "name": "f"}]}
SNAPSHOT = {"segments": [{"total_size": 4_000_000, "blocks": [ACTIVE]}, {"total_size": 5_000_000}]}


class Allocator:
    """Takes the place of `torch.cuda.memory`, which a machine without CUDA has no use of."""

    def _snapshot(self) -> dict[str, Any]:
        return SNAPSHOT

    def __init__(self) -> None:
        self.history = list[Any]()

    def _record_memory_history(self, enabled: str | None = "all", *, max_entries: int = 0) -> None:
        self.history.append((enabled, max_entries))


def test_a_profile_that_runs_out_of_memory_keeps_what_held_it(tmp_path: Path) -> None:
    tool = Memory(ProfileConfig(tool="memory"), tmp_path, Allocator())
    with pytest.raises(torch.OutOfMemoryError), tool.around():
        raise torch.OutOfMemoryError("no more")
    assert pickle.loads((tmp_path / ON_OOM).read_bytes()) == SNAPSHOT


def test_another_failure_keeps_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(ValueError), Memory(ProfileConfig(tool="memory"), tmp_path, Allocator()).around():
        raise ValueError("something else")
    assert list(tmp_path.iterdir()) == []


def test_a_device_tells_who_holds_its_memory_and_a_pause_ends_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    tool = Memory(ProfileConfig(tool="memory", interval_s=60.0), tmp_path, device := Allocator())
    assert tool.phase("p") is None, "outside a repetition"
    with tool.around(), tool.resting():
        assert device.history == [("all", EVENTS), (None, EVENTS)]
    assert device.history[2:] == [("all", EVENTS), (None, EVENTS)]
    with tool.block(0, 1):
        pass
    assert dict(tool.finish(Measured(1.0, {}, 1)).facts)["peak_host_bytes"] == 0.0, "nothing was sampled"
    with tool.block(0, 1) as tick:
        early = torch.empty(2**20, dtype=torch.uint8)
        with tool.phase("outer") or pytest.fail("no phase"), tool.phase("inner") or pytest.fail("no phase"):
            kept = torch.empty(2**20, dtype=torch.uint8)
        before = torch.empty(2**20, dtype=torch.uint8)
        del kept, before, early
        tick()
    found = tool.finish(Measured(1.0, {}, 1))
    assert found.costs == (Cost(name="f", where="x/a.py:", bytes=3e6, calls=1.0),)
    assert found.facts[:2] == (("in_use_bytes", 3e6), ("reserved_bytes", 9e6))
    assert found.findings[-1] == (
        "3.0 MB in use of 9.0 MB reserved after the slice; open snapshot.pickle at"
        " https://pytorch.org/memory_viz"
    )
    assert pickle.loads((tmp_path / "snapshot.pickle").read_bytes()) == SNAPSHOT
    along = read_course(tmp_path)
    assert along is not None and along.phase_names.tolist() == ["outer", "outer/inner"]
    assert along.allocated_bytes.tolist() == [2**20, 2**21, 3 * 2**20, 2**21, 2**20, 0]
    assert (len(along.iteration_ns), len(along.sampled_ns)) == (1, 4), "samples at both ends of a phase"
    assert along.reserved_bytes.tolist() == [0] * 4 and along.host_bytes.min() > 2**20
    ends = [*along.phase_start_ns, *along.phase_end_ns[::-1], *along.iteration_ns]
    assert ends[0] == along.allocated_ns[0] == 0 and ends == sorted(ends)
    assert along.sampled_ns.tolist() == ends[:4] and along.allocated_ns.tolist() == sorted(along.allocated_ns)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_real_device_that_ran_out_of_memory_is_kept(tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**50, device="cuda")
    kept = keep_on_oom(tmp_path)
    assert kept is not None and "segments" in pickle.loads(kept.read_bytes())


def event(key: str, device: str, **values: float) -> SimpleNamespace:
    zeros = {"self_cpu_time_total": 0.0, "self_device_time_total": 0.0, "count": 1, "is_user_annotation": 0.0}
    return SimpleNamespace(key=key, device_type=SimpleNamespace(name=device), **{**zeros, **values})


def test_a_kernels_time_is_not_billed_to_the_operator_that_launched_it_too() -> None:
    averages = [
        event("ProfilerStep*", "CPU", self_cpu_time_total=5.0),
        event("ProfilerStep*", "CUDA", self_device_time_total=90.0, is_user_annotation=1.0),
        event("aten::mm", "CPU", self_cpu_time_total=2.0, self_device_time_total=40.0),
        event("sgemm_128x64", "CUDA", self_device_time_total=40.0, count=3),
    ]
    found = list(costs(averages))
    kernel = Cost(name="sgemm_128x64", device_ns=40_000.0, calls=3.0)
    assert found == [
        Cost(name="(between operators)", self_ns=5000.0, calls=1.0),
        Cost(name="aten::mm", self_ns=2000.0, calls=1.0),
        kernel,
    ]
    more = Cost(name="sgemm_128x64", where="other", self_ns=1.0, device_ns=2.0, calls=4.0)
    assert added(kernel, more) == Cost(name="sgemm_128x64", self_ns=1.0, device_ns=40_002.0, calls=7.0)


MB = 10**6


def course() -> MemoryCourse:
    return MemoryCourse(
        allocated_ns=np.array([0, 2_500_000]),
        allocated_bytes=np.array([MB, 3 * MB]),
        sampled_ns=np.array([0, 1]),
        reserved_bytes=np.zeros(2, int),
        host_bytes=np.array([1024 * MB, 2048 * MB]),
        iteration_ns=np.array([5]),
        phase_names=np.array(["p0"]),
        phase_start_ns=np.zeros(1, int),
        phase_end_ns=np.array([2_500_000]),
    )


def test_on_a_host_it_is_what_was_allocated_above_what_there_was(tmp_path: Path) -> None:
    tool = Memory(ProfileConfig(tool="memory"), tmp_path, None)
    tool._course = course()
    found = tool.finish(Measured(1.0, {}, 1))
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
        block(3, "/x/y/large.py"),
    ]
    assert list(holders({"segments": [{"blocks": blocks}]})) == [
        Cost(name="f", where="y/large.py:3", bytes=8.0, calls=2.0),
        Cost(name="(unknown)", where="", bytes=2.0, calls=1.0),
        Cost(name="f", where="y/small.py:3", bytes=1.0, calls=1.0),
    ]
