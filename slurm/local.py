"""A queue on this machine with explicit slots: one for each GPU, or one on CPU."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from slurm.errors import ClusterError
from slurm.jobs import Executor, ExecutorContext, Job, JobState

GRACE_S = 10.0
"""Time between asking a job to end and killing its process group."""


class LocalExecutor(Executor):
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

    @classmethod
    def of(cls, context: ExecutorContext) -> LocalExecutor:
        """Make one with the slots that were asked for.

        Raises
        ------
        ClusterError
            There are fewer GPUs.
        """
        return cls(slots_here(context.slots, context.gpus, os.environ.get("CUDA_VISIBLE_DEVICES", "")))

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

    def cancel(self, names: Iterable[str] | None = None) -> int:
        """Drop waiting jobs and end running ones, all by default; how many that were.

        Running ones get SIGTERM, and their process group SIGKILL after a grace period.
        """
        chosen = set(self._states if names is None else names)
        cancelled = [job.name for job in self._waiting if job.name in chosen]
        self._waiting = deque(job for job in self._waiting if job.name not in chosen)
        running = {name: self._running.pop(name) for name in chosen & self._running.keys()}
        for process, _ in running.values():
            process.terminate()
        deadline = time.monotonic() + GRACE_S
        for process, slot in running.values():
            _end(process, deadline)
            self._free.append(slot)
        self._states.update(dict.fromkeys([*cancelled, *running], JobState.CANCELLED))
        return len(cancelled) + len(running)

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


def slots_here(asked: int | None, gpus: int, visible: str) -> list[dict[str, str]]:
    """Additional environment of each slot of this machine: one for each of its GPUs that is ours, else one.

    Parameters
    ----------
    asked : slots to make, None: as many as there are
    visible : ``CUDA_VISIBLE_DEVICES`` of this process

    Raises
    ------
    ClusterError
        There are fewer GPUs.
    """
    if not gpus:
        # More than one slot on CPU makes trials disturb one another; whoever asks for it gets it.
        return [{} for _ in range(asked or 1)]
    count = asked or gpus
    if count > gpus:
        raise ClusterError(f"cluster.slots={count} is more than the {gpus} GPUs of this machine")
    # An allocation on a shared node names the GPUs that are ours; counting from 0 would take somebody else's.
    names = visible.split(",") if visible else [str(number) for number in range(gpus)]
    return [{"CUDA_VISIBLE_DEVICES": name.strip()} for name in names[:count]]


def _end(process: subprocess.Popen[bytes], deadline: float) -> None:
    try:
        process.wait(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
