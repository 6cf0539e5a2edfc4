"""A queue on this machine: so many jobs at once, each with GPUs of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Sequence

from slurm.errors import ClusterError
from slurm.jobs import Executor, ExecutorContext, Job, JobState

GRACE_S = 10.0
"""Time between asking a job to end and killing its process group."""


class LocalExecutor(Executor):
    """Runs jobs as processes, in order, as long as there are slots and GPUs for the next one.

    Parameters
    ----------
    slots : jobs at once
    gpus : names of ours, as ``CUDA_VISIBLE_DEVICES`` takes them; a job gets one for each of its ranks, and
        all of them where it has more
    """

    def __init__(self, slots: int = 1, gpus: Sequence[str] = ()) -> None:
        self._slots, self._gpus = slots, tuple(gpus)
        self._free = list(gpus)
        self._waiting: deque[Job] = deque()
        self._running: dict[str, tuple[subprocess.Popen[bytes], Sequence[str]]] = {}
        self._states: dict[str, JobState] = {}

    @classmethod
    def of(cls, context: ExecutorContext) -> LocalExecutor:
        """Make one with the slots that were asked for.

        Raises
        ------
        ClusterError
            There are fewer GPUs than slots.
        """
        gpus = gpus_here(context.gpus, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        if context.slots and gpus and context.slots > len(gpus):
            raise ClusterError(
                f"cluster.slots={context.slots} is more than the {len(gpus)} GPUs of this machine"
            )
        # More than one job at once on CPU makes trials disturb one another; whoever asks for it gets it.
        return cls(context.slots or len(gpus) or 1, gpus)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs in order and start as many as there is room for."""
        self._waiting.extend(jobs)
        self._states.update({job.name: JobState.PENDING for job in jobs})
        self._start_waiting()

    def poll(self) -> dict[str, JobState]:
        """Note which jobs have ended, start waiting ones in their place, and say how all stand."""
        for name, (process, gpus) in list(self._running.items()):
            code = process.poll()
            if code is not None:
                self._states[name] = JobState.ENDED if code == 0 else JobState.FAILED
                del self._running[name]
                self._free += gpus
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
        for process, gpus in running.values():
            _end(process, deadline)
            self._free += gpus
        self._states.update(dict.fromkeys([*cancelled, *running], JobState.CANCELLED))
        return len(cancelled) + len(running)

    def _start_waiting(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            wanted = min(max(1, self._waiting[0].ranks), len(self._gpus))
            if wanted > len(self._free):
                return  # in order: one that fits might else keep a larger job waiting for ever
            job, gpus = self._waiting.popleft(), self._free[:wanted]
            del self._free[:wanted]
            own = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
            job.log.parent.mkdir(parents=True, exist_ok=True)
            with job.log.open("ab") as log:
                process = subprocess.Popen(
                    job.command,
                    env={**os.environ, **own, **job.env},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C in the terminal is for the launcher, which then asks nicely
                    start_new_session=True,
                )
            self._running[job.name] = (process, gpus)
            self._states[job.name] = JobState.RUNNING


def gpus_here(count: int, visible: str) -> list[str]:
    """Names of the GPUs of this machine that are ours.

    Parameters
    ----------
    count : how many this process sees
    visible : ``CUDA_VISIBLE_DEVICES`` of this process
    """
    # An allocation on a shared node names the GPUs that are ours; counting from 0 would take somebody else's.
    names = visible.split(",") if visible else [str(number) for number in range(count)]
    return [name.strip() for name in names[:count]]


def _end(process: subprocess.Popen[bytes], deadline: float) -> None:
    try:
        process.wait(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
