"""Per-slab timing: nothing, host or device marks per pass, or a sampling profiler around the job."""

from __future__ import annotations

import time
from typing import Any

import torch

from perfsweep.workloads.probe1d.counters import Counts


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
