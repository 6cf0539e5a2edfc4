"""Clocks: what they do without a device, with one, and with a simulated one."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfsweep.pipelines.trial.machine import gpus
from perfsweep.pipelines.trial.machine.usage import Usage
from perfsweep.pipelines.trial.timing import clock as clock_module
from perfsweep.pipelines.trial.timing.clock import (
    CONTEXT_BYTES,
    ChildClock,
    DeviceClock,
    HostClock,
    clock_for,
)
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import UnsupportedHere

MIB = 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_peak_of_host_memory_follows_what_was_used_since_the_reset() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("this kernel does not let a process reset its peak")
    # In a process of its own: one that has run other tests answers from memory it has kept.
    done = subprocess.run([sys.executable, "-c", PEAKS], capture_output=True, text=True, check=True)
    floor, peak = json.loads(done.stdout)
    # Half of either block is far above what the interpreter itself allocates meanwhile.
    assert 32 * MIB < peak - floor < 96 * MIB


def test_the_kernels_figures_of_memory_are_told_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_module, "_STATUS", tmp_path / "status")
    (tmp_path / "status").write_text("Name:\tpython\nVmPeak:\t 9 kB\nVmHWM:\t 300 kB\nVmRSS:\t 200 kB\n")
    assert HostClock().peak_bytes() == 300 * 1024


def test_without_proc_the_peak_is_that_of_the_whole_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_STATUS", "_CLEAR_REFS"):
        monkeypatch.setattr(clock_module, name, tmp_path / "none" / name)
    clock, before = HostClock(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock.reset_peak()
    peak, after = clock.peak_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert before * 1024 <= peak <= after * 1024


PEAKS = """
import json
from perfsweep.pipelines.trial.timing.clock import HostClock

clock = HostClock()
block = bytearray(b"1") * (96 * 2**20)
del block
clock.reset_peak()
floor = clock.peak_bytes()
block = bytearray(b"1") * (64 * 2**20)
del block
peak = clock.peak_bytes()
print(json.dumps([floor, peak]))
"""


def test_a_clock_of_other_processes_counts_their_time_and_memory_alone() -> None:
    used = [
        resource.struct_rusage((1.5, 0.25, 300, *[0] * 13)),
        resource.struct_rusage((2, 1, 500, *[0] * 13)),
    ]
    clock = ChildClock(lambda: used[0], devices=2)
    assert clock.used_devices() == [0, 1], "all that they may use"
    before, cpu_ns = clock.usage(), clock.cpu_ns()
    clock.reset_peak()
    assert (cpu_ns, clock.peak_bytes()) == (1_750_000_000, 300 * 1024), "no reset"
    used.pop(0)
    grown = Usage.between(before, clock.usage())
    assert (clock.cpu_ns() - cpu_ns, clock.peak_bytes()) == (1_250_000_000, 500 * 1024)
    assert (grown.system_ns, grown.run_delay_ns) == (750_000_000, None)


def test_an_accelerator_that_torch_does_not_have_is_refused_in_one_sentence() -> None:
    with pytest.raises(UnsupportedHere, match=r"device abacus was asked for and torch .* sees"):
        clock_for(Device(type="abacus"))


class StandInEvent:
    """An event as torch has them, on a device whose time the test sets."""

    time_ms = 0.0
    created = 0
    records = 0

    def __init__(self, device: Any = None, *, enable_timing: bool = False) -> None:
        assert enable_timing, "an event without timing cannot be subtracted"
        StandInEvent.created += 1
        self.at_ms: float | None = None

    def record(self) -> None:
        StandInEvent.records += 1
        self.at_ms = StandInEvent.time_ms

    def query(self) -> bool:
        return self.at_ms is not None

    def elapsed_time(self, end: StandInEvent) -> float:
        assert self.at_ms is not None and end.at_ms is not None
        return end.at_ms - self.at_ms


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A torch that seems to have one accelerator; returns the list of calls made to it."""
    import torch

    calls: list[str] = []

    def answer(name: str, value: Any) -> None:
        def call(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            return value

        monkeypatch.setattr(torch.accelerator, name, call)

    answer("current_accelerator", torch.device("cuda"))
    answer("current_device_index", 0)
    answer("device_count", 1)
    answer("synchronize", None)
    answer("reset_peak_memory_stats", None)
    answer("max_memory_allocated", 7)
    answer("max_memory_reserved", 20)
    monkeypatch.setattr(torch, "Event", StandInEvent)
    monkeypatch.setattr(StandInEvent, "created", 0)
    monkeypatch.setattr(StandInEvent, "records", 0)
    monkeypatch.setattr(StandInEvent, "time_ms", 0.0)
    return calls


def test_a_device_clock_reuses_its_events_and_neither_waits_nor_grows_when_they_are_out(
    accelerator: list[str],
) -> None:
    clock = DeviceClock("cuda", events=2)
    first, second = clock.event(), clock.event()
    assert clock.event() is None
    clock.release(first)
    assert clock.event() is first
    assert second is not None
    assert StandInEvent.created == 2
    assert accelerator.count("synchronize") == 1


def test_device_time_is_given_in_nanoseconds(accelerator: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = DeviceClock("cuda", events=2)
    start = clock.event()
    monkeypatch.setattr(StandInEvent, "time_ms", 1.25)
    end = clock.event()
    assert clock.ready(end)
    assert clock.elapsed_ns(start, end) == 1_250_000


def test_the_peak_of_a_device_outlives_the_warm_up_in_which_graphs_allocate(accelerator: list[str]) -> None:
    clock = DeviceClock("cuda", events=1)
    clock.forget_warm_up()
    assert "reset_peak_memory_stats" not in accelerator


def test_a_process_takes_what_is_reserved_and_its_context_from_others(accelerator: list[str]) -> None:
    clock = DeviceClock("cuda", events=1)
    assert clock.held() == {"peak_reserved_bytes": 20.0}
    assert clock.taken_bytes() == 20 + CONTEXT_BYTES


@pytest.fixture
def computes_on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Gives each device of an accelerator bytes of this process; returns those that are waited for."""
    import torch

    monkeypatch.setattr(gpus, "visible", tuple)

    def install(name: str, *held: int) -> list[int]:
        waited: list[int] = []
        answers = {
            "is_initialized": lambda: True,
            "device_count": lambda: len(held),
            "max_memory_allocated": held.__getitem__,
            "max_memory_reserved": held.__getitem__,
            "reset_peak_memory_stats": lambda number: None,
            "synchronize": waited.append,
        }
        for asked, answer in answers.items():
            monkeypatch.setattr(getattr(torch, name), asked, answer, raising=False)
            if asked != "is_initialized":
                monkeypatch.setattr(torch.accelerator, asked, answer)
        return waited

    return install


UNTIMED = "(3.4 MB), which perfsweep cannot time here: NVML says that there is no GPU;"


@pytest.mark.parametrize(
    ("kind", "hip", "said"),
    [
        ("cuda", None, f"cuda:1 {UNTIMED} in"),
        ("cuda", "7.0", f"hip:1 {UNTIMED} only"),
        ("xpu", None, f"xpu:1 {UNTIMED} only NVIDIA"),
    ],
)
def test_code_that_computes_where_the_host_is_timed_is_refused(
    computes_on: Callable, monkeypatch: pytest.MonkeyPatch, kind: str, hip: str | None, said: str
) -> None:
    import torch

    monkeypatch.setattr(torch.version, "hip", hip)
    HostClock().find_devices()
    computes_on(kind, 0, 3_400_000)
    with pytest.raises(UnsupportedHere, match=re.escape(f"your code computes on {said}")):
        HostClock().find_devices()


def test_an_accelerator_that_holds_nothing_of_this_process_is_no_reason_to_refuse(
    computes_on: Callable,
) -> None:
    computes_on("cuda", 0, 0)
    HostClock().find_devices()
    computes_on("cuda", 0, 1)
    with pytest.raises(UnsupportedHere):
        HostClock().find_devices()


def test_all_devices_that_a_process_uses_are_waited_for_and_count_for_its_peak(
    accelerator: list[str], computes_on: Callable
) -> None:
    waited = computes_on("cuda", 5, 0, 7)
    clock = DeviceClock("cuda", events=1)
    assert clock.used_devices() == [0]
    clock.find_devices()
    waited.clear()
    clock.synchronize()
    assert waited == clock.used_devices() == [0, 2]
    assert clock.peak_bytes() == 12
    assert clock.taken_bytes() == 12 + 2 * CONTEXT_BYTES


def test_code_that_computes_on_another_device_than_the_clock_s_is_refused(
    accelerator: list[str], computes_on: Callable
) -> None:
    computes_on("cuda", 0, 7)
    with pytest.raises(UnsupportedHere, match=r"computes on cuda:1, and .* times cuda:0, .*set_device\(1\)"):
        DeviceClock("cuda", events=1).find_devices()
    computes_on("xpu", 7)
    with pytest.raises(UnsupportedHere, match=r"xpu:0 .* cannot time here"):
        DeviceClock("cuda", events=1).find_devices()


@pytest.mark.gpu
def test_a_real_device_is_timed_by_its_own_events() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    clock = DeviceClock("cuda", events=2)
    matrix = torch.randn(4096, 4096, device="cuda")
    torch.mm(matrix, matrix)  # the first product loads its library
    clock.synchronize()
    host_start = clock.now_ns()
    start = clock.event()
    for _ in range(20):
        torch.mm(matrix, matrix)
    end = clock.event()
    launched_ns = clock.now_ns() - host_start
    clock.synchronize()
    whole_ns = clock.now_ns() - host_start
    # Launches return long before products are done; device time is within a tenth of the synced host's.
    assert launched_ns < clock.elapsed_ns(start, end)
    assert clock.elapsed_ns(start, end) == pytest.approx(whole_ns, rel=0.1)
