"""What profiling tools make of bytes of operators, holders of memory, reasons of breaks, and ceilings."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsweep.pipelines.profiling.memory import EVENTS, Memory
from perfsweep.pipelines.profiling.tracing import costs
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.trial.failures import ON_OOM, keep_on_oom
from perfsweep.workloads.peaks import peak


def test_the_longest_name_of_a_device_counts() -> None:
    found = {
        name: peak(name) for name in ("NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "a laptop")
    }
    assert [one and one.bytes_per_s for one in found.values()] == [2.0e12, 3.35e12, 4.8e12, None]
    assert found["NVIDIA H200"] and found["NVIDIA H200"].flops_per_s("tf32") == 494e12


def block(size: int, *frames: tuple[str, int, str], state: str = "active_allocated") -> dict[str, Any]:
    named = [{"filename": file, "line": line, "name": name} for file, line, name in frames]
    return {"size": size, "state": state, "frames": named}


FORWARD = ("/x/study/model.py", 7, "forward")
TORCH = ("/lib/torch/nn/modules/linear.py", 3, "forward")
SNAPSHOT = {
    "segments": [
        {"total_size": 400, "blocks": [block(100, TORCH, FORWARD), block(50, state="inactive")]},
        {"total_size": 100, "blocks": [block(30, TORCH, FORWARD), block(60)]},
    ]
}


class Allocator:
    """Stands for `torch.cuda.memory`, which a machine without CUDA has no use of."""

    def __init__(self, snapshot: Callable[[], dict[str, Any]] = lambda: SNAPSHOT) -> None:
        self.take, self.recorded = snapshot, list[Any]()

    def _snapshot(self) -> dict[str, Any]:
        return self.take()

    def _record_memory_history(self, enabled: str | None = "all", *, max_entries: int = EVENTS) -> None:
        self.recorded.append(enabled)


def test_a_profile_that_runs_out_of_memory_keeps_what_held_it(tmp_path: Path) -> None:
    tool = Memory(ProfileConfig(tool="memory"), tmp_path, Allocator())
    with pytest.raises(torch.OutOfMemoryError), tool.around():
        raise torch.OutOfMemoryError("no more")
    assert pickle.loads((tmp_path / ON_OOM).read_bytes()) == SNAPSHOT


def test_another_failure_keeps_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(ValueError), Memory(ProfileConfig(tool="memory"), tmp_path, Allocator()).around():
        raise ValueError("something else")
    assert list(tmp_path.iterdir()) == []


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
        event("sgemm_128x64", "CUDA", self_device_time_total=40.0),
    ]
    found = [(cost.name, cost.self_ns, cost.device_ns) for cost in costs(averages)]
    assert found == [
        ("(between operators)", 5000.0, 0.0),
        ("aten::mm", 2000.0, 0.0),
        ("sgemm_128x64", 0.0, 40000.0),
    ]
