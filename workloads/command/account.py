"""What the runs of a trial have used and written so far."""

from __future__ import annotations

import resource
import sys

from perfsweep.workloads.command import launcher
from perfsweep.workloads.command.program import Run


class Account:
    """Adds up runs; says once where one wrote more than is kept."""

    def __init__(self) -> None:
        self._runs = self._peak_bytes = self._status = 0
        self._output_bytes = self._error_bytes = 0
        self._usage = launcher.NOTHING
        self._whole = True

    def add(self, run: Run) -> None:
        """Take in a run, whatever it ended with."""
        self._runs += 1
        self._status = run.status
        self._usage = launcher.together(self._usage, run.usage)
        self._peak_bytes = max(self._peak_bytes, run.peak_bytes)
        self._output_bytes += run.output.written
        self._error_bytes += run.errors.written
        if self._whole and not (run.output.whole and run.errors.whole):
            self._whole = False
            print(
                f"a run wrote {run.output.written + run.errors.written} bytes; the last"
                f" {run.output.limit >> 20} MiB are kept, and evidence is looked for in these",
                file=sys.stderr,
                flush=True,
            )

    def counters(self) -> dict[str, float]:
        """Means over the runs, except for the exit status, of the last, and the peak."""
        runs = max(self._runs, 1)
        return {
            "exit_status": float(self._status),
            "output_bytes": self._output_bytes / runs,
            "error_bytes": self._error_bytes / runs,
            "cpu_user_s": self._usage[0] / runs,
            "cpu_system_s": self._usage[1] / runs,
            "run_peak_bytes": float(self._peak_bytes),
        }

    def usage(self) -> resource.struct_rusage:
        """All runs together, as the kernel would tell it."""
        peak_kib = -(-self._peak_bytes // 1024)
        return resource.struct_rusage((*self._usage[:2], peak_kib, *map(int, self._usage[3:])))
