"""What a pass tells the host: facts, at once or by a copy that is not waited for, and its time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.counters import Counts

LOGGER = logging.getLogger("perfsweep.probe1d")
PASSES_PER_COPY = 8


@dataclass(frozen=True)
class PassFacts:
    """Device tensors that describe one slab pass; without loss or failures if the solver has none."""

    loss: Tensor | None
    g0: Tensor
    g1: Tensor
    lam: Tensor
    failed: Tensor | None


class WaitingLog:
    """Reads scalars on every pass: two always, one to see whether steps failed, five more when they did."""

    def __init__(self, counts: Counts, sink: Callable[[Mapping[str, float]], None], debug: bool) -> None:
        self.counts, self.sink, self.debug = counts, sink, debug

    def begin(self, max_iter: int, device: torch.device) -> None:
        """Start a slab."""

    def any_left(self, left: Tensor) -> bool:
        """Whether a pair still needs a try."""
        return bool(self.counts.read(left.any()))

    def write(self, facts: PassFacts) -> None:
        """Log one pass; a pass with failed steps is a warning."""
        if self.debug and facts.g0.is_cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.counts.add("device_syncs")
        read = self.counts.read
        level = facts.lam if facts.loss is None else facts.loss
        row = {"lambda" if facts.loss is None else "loss": read(level.mean())}
        row["gradient"] = read(torch.maximum(facts.g0.abs(), facts.g1.abs()).max())
        if facts.failed is not None and read(facts.failed.any()):
            row |= self._warn(facts, facts.failed)
        self.sink(row)

    def _warn(self, facts: PassFacts, failed: Tensor) -> dict[str, float]:
        read = self.counts.read
        n_fail = int(read(failed.sum()))
        low, high = read(facts.lam[failed].min()), read(facts.lam[failed].max())
        grad = read(facts.g0[failed].abs().max()), read(facts.g1[failed].abs().max())
        warn_failed(self.counts, n_fail, low, high, grad)
        return {"n_fail": n_fail, "lambda_max": high}

    def stopped(self, flag: Tensor) -> bool:
        """Whether the slab's stop test holds."""
        return bool(self.counts.read(flag))

    def finish(self) -> None:
        """End a slab."""


def warn_failed(counts: Counts, n_fail: int, low: float, high: float, grad: tuple[float, float]) -> None:
    """The warning of a pass on which `n_fail` pairs found no step."""
    counts.add("n_fail", n_fail)
    counts.add("failing_passes")
    counts.add("warnings")
    LOGGER.warning(
        "LM step fallback: n_fail=%d lam_min=%.3g lam_max=%.3g grad_max=(%.3g,%.3g)",
        n_fail,
        low,
        high,
        grad[0],
        grad[1],
    )


class DeviceLog:
    """Keeps the facts of each pass on the device and copies them out every few passes, without waiting.

    The stop flag travels the same way: a slab may run some passes longer, with all updates masked, so results
    are those of the waiting log.
    """

    def __init__(self, counts: Counts, sink: Callable[[Mapping[str, float]], None]) -> None:
        self.counts, self.sink = counts, sink
        self.table = self.host = torch.empty(0)
        self.passes, self.arrived = 0, None

    def begin(self, max_iter: int, device: torch.device) -> None:
        """Start a slab: a table of [max_iter, 8] facts on the device and its host copy (pinned on CUDA)."""
        self.table = torch.zeros(max_iter + 1, 8, dtype=torch.float64, device=device)
        self.host = torch.zeros(max_iter + 1, 8, dtype=torch.float64, pin_memory=device.type == "cuda")
        self.passes, self.arrived = 0, None

    def any_left(self, left: Tensor) -> bool:
        """Always: the host does not look, retries are masked on the device."""
        return True

    def write(self, facts: PassFacts) -> None:
        """Reduce the facts of one pass on the device."""
        failed = torch.zeros_like(facts.lam, dtype=torch.bool) if facts.failed is None else facts.failed
        inf = torch.full_like(facts.lam, torch.inf)
        zero = torch.zeros_like(facts.lam)
        row = [
            facts.lam.mean() if facts.loss is None else facts.loss.mean(),
            torch.maximum(facts.g0.abs(), facts.g1.abs()).max(),
            failed.sum(),
            torch.where(failed, facts.lam, inf).min(),
            torch.where(failed, facts.lam, zero).max(),
            torch.where(failed, facts.g0.abs(), zero).max(),
            torch.where(failed, facts.g1.abs(), zero).max(),
        ]
        self.table[self.passes, :7] = torch.stack([value.double() for value in row])

    def stopped(self, flag: Tensor) -> bool:
        """Whether a copy that has arrived says so."""
        self.table[self.passes, 7] = flag
        self.passes += 1
        if self.passes % PASSES_PER_COPY == 0:
            self.host.copy_(self.table, non_blocking=True)
            self.counts.add("async_copies")
            if self.table.is_cuda:
                self.arrived = torch.cuda.Event()
                self.arrived.record()
            else:
                return bool(self.host[:, 7].any())
        return self.arrived is not None and self.arrived.query() and bool(self.host[:, 7].any())

    def finish(self) -> None:
        """End a slab: one wait for its whole table, then its log rows and warnings."""
        for loss, gradient, n_fail, low, high, g0, g1, stop in self.counts.read_all(
            self.table[: self.passes]
        ):
            row = {"loss": loss, "gradient": gradient}
            if n_fail:
                warn_failed(self.counts, int(n_fail), low, high, (g0, g1))
                row |= {"n_fail": n_fail, "lambda_max": high}
            self.sink(row)
            if stop:
                break


class NoHook:
    """No timing."""

    def pass_begins(self, slab: int) -> None:
        """A pass over `slab` is about to start."""

    def slab_ends(self) -> None:
        """The last pass of a slab has ended."""

    def job_begins(self) -> None:
        """A job starts."""

    def job_ends(self) -> None:
        """A job has ended."""


class PassTimes(NoHook):
    """Times of slab passes in `rows` as (slab, milliseconds), read a pass late so that nothing waits."""

    def __init__(self, counts: Counts, device: str) -> None:
        self.counts, self.cuda = counts, device == "cuda"
        self.rows: list[tuple[int, float]] = []
        self.open: tuple[int, Any] | None = None
        self.pending: list[tuple[int, Any, Any]] = []

    def _mark(self) -> Any:
        if not self.cuda:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def pass_begins(self, slab: int) -> None:
        """Close the pass before and open one on `slab`; read what has finished."""
        mark = self._mark()
        self._close(mark)
        self.open = (slab, mark)
        self._read(wait=False)

    def slab_ends(self) -> None:
        """Close the last pass of a slab."""
        self._close(self._mark())

    def _close(self, mark: Any) -> None:
        if self.open is not None:
            self.pending.append((self.open[0], self.open[1], mark))
            self.open = None

    def _read(self, wait: bool) -> None:
        while self.pending:
            slab, start, end = self.pending[0]
            if self.cuda and not wait and not end.query():
                return
            ms = start.elapsed_time(end) if self.cuda else (end - start) / 1e6
            self.rows.append((slab, ms))
            self.counts.add("hook_records")
            self.pending.pop(0)

    def job_begins(self) -> None:
        """Forget the times of the job before."""
        self.rows.clear()

    def job_ends(self) -> None:
        """Read what is left."""
        if self.cuda:
            torch.cuda.synchronize()
        self._read(wait=True)


class SamplingProfiler(NoHook):
    """pyinstrument at 1 ms around the whole job; `session` holds the last one."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self.profiler: Any = None
        self.session: Any = None

    def job_begins(self) -> None:
        """Start sampling."""
        from pyinstrument import Profiler

        self.profiler = Profiler(interval=0.001)
        self.profiler.start()

    def job_ends(self) -> None:
        """Stop sampling and keep the session."""
        if self.profiler is not None and self.profiler.is_running:
            self.session = self.profiler.stop()
            self.counts.add("profiler_samples", self.session.sample_count)
