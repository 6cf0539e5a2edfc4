"""What operators and devices do: each call and each kernel is counted once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from perfsweep.pipelines.trial.counters import DeviceActivity, OperatorCalls, covered, summary
from perfsweep.pipelines.trial.timing.clock import DeviceClock
from perfsweep.pipelines.trial.timing.recorder import Recorder


def counted(work: Callable[[], Any]) -> OperatorCalls:
    calls = OperatorCalls()
    with calls.mode():
        work()
    return calls


A, B = torch.ones(2, 3), torch.ones(3, 4)
BATCH = torch.ones(5, 2, 3)
HALF = torch.ones(2, 3, dtype=torch.bfloat16)
PICTURE, KERNEL = torch.ones(1, 2, 5, 5), torch.ones(4, 2, 3, 3)


@pytest.mark.parametrize(
    ("work", "ops", "flops", "low"),
    [
        (lambda: A @ B, 1, 2 * 2 * 3 * 4, 0),
        (lambda: torch.addmm(torch.ones(4), A, B), 2, 48, 0),
        (lambda: torch.bmm(BATCH, BATCH.mT), 1, 5 * 2 * 2 * 3 * 2, 0),
        (lambda: HALF @ HALF.mT, 1, 2 * 2 * 3 * 2, 1),
        (lambda: torch.conv2d(PICTURE, KERNEL), 1, 2 * 9 * 4 * 2 * 9, 0),
        (lambda: HALF + 1, 1, 0, 0),
        (lambda: A.view(3, 2), 0, 0, 0),
        (lambda: A.mT, 0, 0, 0),
        (lambda: A.add_(1), 1, 0, 0),
        (lambda: torch.relu(A).sum(), 2, 0, 0),
    ],
    ids=["mm", "addmm", "bmm", "half", "convolution", "half sum", "view", "transpose", "in place", "two"],
)
def test_a_call_counts_for_what_it_does(work: Callable[[], Any], ops: int, flops: int, low: int) -> None:
    calls = counted(work)
    assert (calls.ops, calls.flops, calls.low_precision_ops) == (ops, flops, low)


@pytest.mark.parametrize(
    ("work", "reads"),
    [(lambda: A.sum().item(), 1), (lambda: torch.equal(A, A), 1), (lambda: A[A > 0], 0), (lambda: A + 1, 0)],
    ids=["item", "equal", "mask", "sum"],
)
def test_on_the_host_only_scalars_are_read(work: Callable[[], Any], reads: int) -> None:
    assert counted(work).host_reads == reads


def test_attention_is_two_products_and_its_gradient_five() -> None:
    query = torch.ones(1, 2, 3, 8, requires_grad=True)
    key, value = torch.ones(1, 2, 5, 8), torch.ones(1, 2, 5, 8)
    pairs, each = 2 * 3 * 5, 2 * 8
    forward = counted(lambda: torch.nn.functional.scaled_dot_product_attention(query, key, value))
    assert forward.flops == pairs * each * 2
    both = counted(
        lambda: torch.nn.functional.scaled_dot_product_attention(query, key, value).sum().backward()
    )
    assert both.flops == pairs * each * (2 + 5)


def event(device: str, start: float, end: float) -> SimpleNamespace:
    return SimpleNamespace(
        device_type=f"DeviceType.{device}", time_range=SimpleNamespace(start=start, end=end)
    )


def test_kernels_that_overlap_on_several_streams_count_their_time_once() -> None:
    events = [event("CUDA", 0, 10), event("CUDA", 5, 12), event("CUDA", 20, 21), event("CPU", 0, 100)]
    assert summary(events) == {"kernels": 3.0, "busy_ns": 13_000.0}


def test_nothing_seen_is_unknown_and_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = pytest.importorskip("torch.profiler")
    monkeypatch.setattr(profiler, "supported_activities", set)  # as of a torch that is built without CUPTI
    with DeviceActivity() as activity:
        pass
    assert activity.result(4, 8.0) == {"kernel_launches": None, "device_busy_ns": None}


@pytest.mark.gpu
def test_a_region_with_phases_and_events_never_synchronises() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    clock = DeviceClock("cuda", events=64)
    recorder, x = Recorder(clock), torch.randn(512, 512, device="cuda")
    recorder.start()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(200):  # more marks than the pool has events
            with recorder.phase("multiply"):
                x = torch.mm(x, x).clamp_(-1, 1)
            recorder.lap()
        with pytest.raises(RuntimeError, match="synchronizing"):
            x.sum().item()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    recorder.stop()
    assert len(recorder.series().wall_ns) == 200


@pytest.mark.gpu
def test_a_device_that_waits_for_its_host_is_seen_idle() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    x = torch.randn(64, 64, device="cuda")
    torch.cuda.synchronize()
    with DeviceActivity() as activity:
        for _ in range(20):
            torch.mm(x, x)
        torch.cuda.synchronize()
    found = activity.result(20, 20.0)
    assert found["kernel_launches"] is not None and found["kernel_launches"] >= 1
    assert found["device_busy_ns"] is not None and 0 < found["device_busy_ns"] < 1e6


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted).map(tuple), max_size=12))
def test_the_union_is_what_counting_points_says(spans: list[tuple[int, int]]) -> None:
    assert covered(spans) == len({point for start, end in spans for point in range(start, end)})
