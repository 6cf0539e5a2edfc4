"""Losses and monitoring on their way to the log."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

NAMES = ("tf", "first", "kce", "kd", "extra", "loss", "grad_norm", "skipped")
KEPT = 1000

Log = Callable[[Mapping[str, float]], None]


class Metrics:
    """Takes one vector of metrics per step, [8] in the order of `NAMES`.

    ``chatty`` reads each entry at once. ``late`` keeps them in a ring on the device and copies it whole every
    `every` steps: rows arrive up to that many steps late, and nothing waits in between.
    """

    def __init__(
        self, late: bool, every: int, device: torch.device, dtype: torch.dtype, log: Log, counts: Counter[str]
    ) -> None:
        self.history: deque[float] = deque(maxlen=KEPT)
        self._late, self._every, self._log, self._counts = late, every, log, counts
        self._ring = torch.zeros(every, len(NAMES), device=device, dtype=dtype)
        self._filled = 0
        self._hosts: list[dict[str, float]] = []
        self._monitor = Monitor(device)

    def push(self, values: Tensor, host: Mapping[str, float]) -> None:
        """Metrics of a step: `values` [8] on the device, `host` known here already."""
        if not self._late:
            read = []
            for value in values.unbind():
                read.append(value.item())
                self._counts["syncs"] += 1
            self._write(read, {**host, **self._monitor.sample()})
            return
        self._ring[self._filled].copy_(values)
        self._hosts.append(dict(host))
        self._filled += 1
        if self._filled == self._every:
            self.flush()

    def flush(self) -> None:
        """Copy what the ring holds and hand it over."""
        if not self._filled:
            return
        self._counts["syncs"] += 1
        rows = self._ring[: self._filled].cpu().tolist()
        sample = self._monitor.sample()
        for read, host in zip(rows, self._hosts, strict=True):
            self._write(read, {**host, **sample})
        self._filled, self._hosts = 0, []

    def _write(self, read: list[float], host: Mapping[str, float]) -> None:
        row = dict(zip(NAMES, read, strict=True))
        self.history.append(row["loss"])
        self._log({**row, **host})


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
