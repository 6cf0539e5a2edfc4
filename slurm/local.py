"""A queue on this machine with explicit slots: one for each GPU, or one on CPU."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence

from slurm.jobs import Job, JobState

GRACE_S = 10.0
"""Time between asking a job to end and killing its process group."""


class LocalExecutor:
    """Runs jobs as processes, at most one on each slot.

    Parameters
    ----------
    slots : additional environment of each slot, such as ``CUDA_VISIBLE_DEVICES`` of its GPU
    """

    def __init__(self, slots: Sequence[Mapping[str, str]] = ({},)) -> None:
        self._free = deque(slots)
        self._waiting: deque[Job] = deque()
        self._running: dict[str, tuple[subprocess.Popen[bytes], Mapping[str, str]]] = {}
        self._states: dict[str, JobState] = {}

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs in order and start as many as there are slots."""
        self._waiting.extend(jobs)
        self._states.update({job.name: JobState.PENDING for job in jobs})
        self._start_waiting()

    def poll(self) -> dict[str, JobState]:
        """Note which jobs have ended, start waiting ones in their slots, and say how all stand."""
        for name, (process, slot) in list(self._running.items()):
            code = process.poll()
            if code is not None:
                self._states[name] = JobState.ENDED if code == 0 else JobState.FAILED
                del self._running[name]
                self._free.append(slot)
        self._start_waiting()
        return dict(self._states)

    def notes(self) -> dict[str, str]:
        """Nothing: a local job's log says it all."""
        return {}

    def cancel(self) -> None:
        """Drop waiting jobs, end running ones: SIGTERM first, SIGKILL to the process group after a grace
        period."""
        for job in self._waiting:
            self._states[job.name] = JobState.CANCELLED
        self._waiting.clear()
        for process, _ in self._running.values():
            process.terminate()
        deadline = time.monotonic() + GRACE_S
        for name, (process, _) in self._running.items():
            try:
                process.wait(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self._states[name] = JobState.CANCELLED
        self._running.clear()

    def _start_waiting(self) -> None:
        while self._waiting and self._free:
            job, slot = self._waiting.popleft(), self._free.popleft()
            job.log.parent.mkdir(parents=True, exist_ok=True)
            with job.log.open("ab") as log:
                process = subprocess.Popen(
                    job.command,
                    env={**os.environ, **slot, **job.env},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C in the terminal is for the launcher, which then asks nicely
                    start_new_session=True,
                )
            self._running[job.name] = (process, slot)
            self._states[job.name] = JobState.RUNNING
