"""A CUDA device that sleeps, multiplies and copies for the check of its clock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import torch

from perfsweep.pipelines.trial.counting.device_activity import DeviceActivity
from perfsweep.pipelines.trial.timing.clock import DeviceClock
from perfsweep.workloads.training.precision import set_tf32

SIDE = 8192
"""Of the square matrices."""

COPIED_BYTES = 2**30
_CALIBRATION_CYCLES = 20_000_000


class CudaBench:
    """The current CUDA device; see `perfsweep.pipelines.gpu_check.clock_stage.Bench`."""

    def __init__(self) -> None:
        self.clock = DeviceClock("cuda")
        torch.cuda._sleep(_CALIBRATION_CYCLES)  # the first launch loads the kernel
        self._cycles_per_ns = _CALIBRATION_CYCLES / self._timed_ns(
            lambda: torch.cuda._sleep(_CALIBRATION_CYCLES), 5
        )

    def launch(self, duration_ns: int) -> None:
        """Have the device sleep, by a kernel that counts cycles."""
        torch.cuda._sleep(round(duration_ns * self._cycles_per_ns))

    def host(self, duration_ns: int) -> None:
        """Spin on the host."""
        until = self.clock.now_ns() + duration_ns
        while self.clock.now_ns() < until:
            pass

    def busy_ns(self, work: Callable[[], None]) -> float | None:
        """What the profiler saw of kernels while `work` ran."""
        with DeviceActivity() as activity:
            work()
        return activity.result(1, 1)["device_busy_ns"]

    def rates(self) -> dict[str, float]:
        """Products in FLOP/s by their type, copies in bytes per second; a device copy reads and writes."""
        rates = {kind: self._products(kind) for kind in ("half", "tf32", "float32")}
        here = torch.empty(COPIED_BYTES, dtype=torch.uint8, device=self.clock.device)
        there, pageable = torch.empty_like(here), torch.empty(COPIED_BYTES, dtype=torch.uint8)
        pinned = torch.empty(COPIED_BYTES, dtype=torch.uint8, pin_memory=True)
        sources = {"device": there, "pinned": pinned, "pageable": pageable}
        for name, source in sources.items():
            ns = self._timed_ns(lambda source=source: here.copy_(source, non_blocking=True), 10)
            rates[name] = (2 if name == "device" else 1) * COPIED_BYTES / ns * 1e9
        return rates

    def _products(self, kind: str) -> float:
        dtype = torch.bfloat16 if kind == "half" else torch.float32
        left, right = (torch.randn(SIDE, SIDE, device=self.clock.device).to(dtype) for _ in range(2))
        with ExitStack() as undo:
            set_tf32(kind == "tf32", undo)
            return 2 * SIDE**3 / self._timed_ns(lambda: left @ right, 20) * 1e9

    def _timed_ns(self, work: Callable[[], object], times: int) -> float:
        """Device time of one call, after some that are not timed."""
        for _ in range(3):
            work()
        first = self.clock.event()
        for _ in range(times):
            work()
        last = self.clock.event()
        self.clock.synchronize()
        taken_ns = self.clock.elapsed_ns(first, last) / times
        self.clock.release(first)
        self.clock.release(last)
        return taken_ns
