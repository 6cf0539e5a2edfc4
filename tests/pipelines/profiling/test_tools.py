"""What profiling tools make of bytes of operators, holders of memory, reasons of breaks, and ceilings."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsweep.pipelines.profiling.dynamo import explained, first_line
from perfsweep.pipelines.profiling.memory import EVENTS, Memory, holders
from perfsweep.pipelines.profiling.roofline import OUTSIDE, moved, own_times, product_type, stored
from perfsweep.pipelines.profiling.tool import Measured
from perfsweep.pipelines.profiling.tracing import costs
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.trial.failures import ON_OOM, keep_on_oom
from perfsweep.workloads.peaks import peak

A, B = torch.zeros(8, 16), torch.zeros(16, 4)
TABLE, ROWS = torch.zeros(1000, 4), torch.zeros(10, dtype=torch.int64)
PICKED = torch.zeros(10, 4)

MOVED = [
    ("mm", (A, B), {}, torch.zeros(8, 4), 4 * (8 * 16 + 16 * 4 + 8 * 4)),
    ("add", (A, 1.0), {}, A, 2 * A.nbytes),
    ("add", (A, A[:1].expand(8, 16)), {}, A, 2 * A.nbytes + 4 * 16),  # an expanded row is stored once
    ("cat", ([A, A],), {}, torch.zeros(16, 16), 4 * A.nbytes),
    ("copy_", (A, A), {}, A, 2 * A.nbytes),  # the target is written, not read
    ("mm", (A, B), {"out": torch.zeros(8, 4)}, torch.zeros(8, 4), 4 * (8 * 16 + 16 * 4 + 8 * 4)),
    ("index_select", (TABLE, 0, ROWS), {}, PICKED, 2 * PICKED.nbytes + ROWS.nbytes),
    ("index_add_", (TABLE, 0, ROWS, PICKED), {}, TABLE, 3 * PICKED.nbytes + ROWS.nbytes),
    ("empty_like", (A,), {}, A, 0),
]


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "out", "expected"),
    MOVED,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_operator_reads_its_operands_once_and_writes_its_results(
    name: str, args: Any, kwargs: Any, out: torch.Tensor, expected: int
) -> None:
    assert moved(name, args, kwargs, out) == expected


def test_a_sparse_tensor_is_its_values_and_indices() -> None:
    dense = torch.eye(100)
    assert stored(dense.to_sparse_coo()) == 100 * 4 + 2 * 100 * 8
    assert stored(dense.to_sparse_csr()) == 100 * 4 + 101 * 8 + 100 * 8


def test_a_phase_has_the_time_that_phases_inside_it_have_not() -> None:
    measured = Measured(100.0, {"outer": 70.0, "outer/inner": 30.0, "other": 10.0}, 1)
    assert own_times(measured) == {OUTSIDE: 20.0, "outer": 40.0, "outer/inner": 30.0, "other": 10.0}


@pytest.mark.parametrize(
    ("dtype", "expected"), [(torch.bfloat16, "half"), (torch.float64, "float64"), (torch.float32, "float32")]
)
def test_products_are_judged_by_the_peak_of_their_type(dtype: torch.dtype, expected: str) -> None:
    if dtype is torch.float32 and torch.cuda.is_available():
        pytest.skip("a GPU may use TF32")
    assert product_type((torch.zeros(3), torch.zeros(2, 2, dtype=dtype))) == expected


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


def test_memory_in_use_belongs_to_the_innermost_code_outside_torch() -> None:
    found = [(cost.name, cost.where, cost.bytes, cost.calls) for cost in holders(SNAPSHOT)]
    assert found == [("forward", "study/model.py:7", 130, 2), ("(unknown)", "", 60, 1)]


def test_memory_history_covers_set_up_and_ends_with_the_profile(tmp_path: Path) -> None:
    allocator = Allocator()
    tool = Memory(ProfileConfig(tool="memory"), tmp_path, allocator)
    with tool.around():
        assert allocator.recorded == ["all"]
        with tool.resting():
            assert allocator.recorded == ["all", None]  # a repetition without the tool pays nothing for it
        with tool.block(0, 1):
            assert allocator.recorded[-1] == "all"
        found = tool.finish(Measured(1.0, {}, 1))
    assert allocator.recorded[-1] is None
    assert pickle.loads((tmp_path / "snapshot.pickle").read_bytes()) == SNAPSHOT
    assert {"in_use_bytes": 190.0, "reserved_bytes": 500.0}.items() <= dict(found.facts).items()


def test_a_profile_that_runs_out_of_memory_keeps_what_held_it(tmp_path: Path) -> None:
    tool = Memory(ProfileConfig(tool="memory"), tmp_path, Allocator())
    with pytest.raises(torch.OutOfMemoryError), tool.around():
        raise torch.OutOfMemoryError("no more")
    assert pickle.loads((tmp_path / ON_OOM).read_bytes()) == SNAPSHOT


def test_another_failure_keeps_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(ValueError), Memory(ProfileConfig(tool="memory"), tmp_path, Allocator()).around():
        raise ValueError("something else")
    assert list(tmp_path.iterdir()) == []


def refusing() -> dict[str, Any]:
    raise RuntimeError("the device is lost")


def test_a_snapshot_that_cannot_be_taken_hides_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert keep_on_oom(tmp_path, Allocator(refusing)) is None
    assert keep_on_oom(tmp_path / "missing", Allocator()) is None
    assert "no memory snapshot: the device is lost" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_without_cuda_there_is_nothing_to_keep(tmp_path: Path) -> None:
    assert keep_on_oom(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_real_device_that_ran_out_of_memory_is_kept(tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**50, device="cuda")
    kept = keep_on_oom(tmp_path)
    assert kept is not None and "segments" in pickle.loads(kept.read_bytes())


REASON = "Failed to trace builtin\n  Explanation: Dynamo does not know `print`\n  Hint: leave it out"


def test_breaks_of_one_place_are_counted_and_recompiles_have_their_guard() -> None:
    place = [SimpleNamespace(filename="model.py", lineno=3, name="forward")]
    breaks = [SimpleNamespace(reason=REASON, user_stack=place)] * 2
    totals = {
        "compiled_graphs": 3.0,
        "graph_breaks": 2.0,
        "recompiles": 1.0,
        "compile_s": 1.25,
        "cudagraph_skips": 0.0,
    }
    lines = list(
        explained({**totals, "recompile_limit_hit": 1.0}, breaks, ("0/0: size mismatch at index 0",))
    )
    assert lines == [
        "3 graphs in 1.2 s, 2 graph breaks, 1 recompile, 0 CUDA graphs skipped",
        (
            "graph break, 2 times, at model.py:3 in forward: Failed to trace builtin: Dynamo does not know"
            " `print`"
        ),
        "recompiled: 0/0: size mismatch at index 0",
        "the recompile limit was hit: from then on that frame runs eagerly",
    ]
    assert first_line("plain") == "plain"


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
