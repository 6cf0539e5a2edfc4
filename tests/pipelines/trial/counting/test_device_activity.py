"""What the device does, seen by the profiler, and what an arm therefore waits for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsweep.pipelines.trial.counting.device_activity import DeviceActivity, covered, summary
from perfsweep.pipelines.trial.timing.clock import DeviceClock
from perfsweep.pipelines.trial.timing.recorder import Recorder


def event(device: str, start: float, end: float) -> SimpleNamespace:
    return SimpleNamespace(
        device_type=f"DeviceType.{device}", time_range=SimpleNamespace(start=start, end=end)
    )


def test_kernels_that_overlap_on_several_streams_count_their_time_once() -> None:
    events = [event("CUDA", 0, 10), event("CUDA", 5, 12), event("CUDA", 20, 21), event("CPU", 0, 100)]
    assert summary(events) == {"kernels": 3.0, "busy_ns": 13_000.0}


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted).map(tuple), max_size=12))
def test_the_union_is_what_counting_points_says(spans: list[tuple[int, int]]) -> None:
    assert covered(spans) == len({point for start, end in spans for point in range(start, end)})


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
    assert recorder.series().iterations == 200


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
