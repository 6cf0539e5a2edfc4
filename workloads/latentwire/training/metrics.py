"""What rows of the log are made of."""

from __future__ import annotations

import math
import time

import torch

NAMES = ("tf", "first", "kce", "kd", "extra", "loss", "grad_norm", "skipped")
"""Names of a step's metrics, in their order."""
KEPT = 1000
"""Losses that are remembered."""


class Monitor:
    """Memory and utilisation; nothing here waits for the device.

    On CUDA: allocated and reserved MiB, fragmentation 1 - allocated / reserved, inactive split MiB, allocator
    retries (they come before running out) and NVML's utilisation. On CPU: the process's CPU time over wall
    time.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def sample(self) -> dict[str, float]:
        """Figures since the last sample."""
        if self._device.type == "cuda":
            return self._of_cuda()
        wall, cpu = time.perf_counter(), time.process_time()
        busy = (cpu - self._cpu) / max(wall - self._wall, 1e-9)
        self._wall, self._cpu = wall, cpu
        return {"device_busy": busy}

    def _of_cuda(self) -> dict[str, float]:
        stats = torch.cuda.memory_stats(self._device)
        allocated, reserved = stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"]
        try:
            busy = torch.cuda.utilization(self._device) / 100
        except (ModuleNotFoundError, RuntimeError):  # no NVML in this container
            busy = math.nan
        return {
            "device_busy": busy,
            "allocated_mb": allocated / 2**20,
            "reserved_mb": reserved / 2**20,
            "fragmentation": 1 - allocated / max(reserved, 1),
            "inactive_split_mb": stats["inactive_split_bytes.all.current"] / 2**20,
            "alloc_retries": float(stats["num_alloc_retries"]),
        }
