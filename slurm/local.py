"""Running here: a queue on this machine or in this very process, and steps on the nodes of our allocation."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from perfsweep.slurm.client import SlurmClient
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import Executor, ExecutorContext, Job, JobState

GRACE_S = 10.0
"""Time between asking a job to end and killing its process group."""


@dataclass(frozen=True)
class _Running:
    """A job's process, and what it keeps from other jobs."""

    process: subprocess.Popen[bytes]
    gpus: Sequence[str]
    shares: list[list[int]]


class LocalExecutor(Executor):
    """Runs jobs as processes, in order, as long as there are slots and GPUs for the next one.

    Parameters
    ----------
    slots : jobs at once, each on its share of the cores, as two arms on one core take each other's time;
        without GPUs one of several ranks takes a slot for each of them, as far as there are
    gpus : names of ours, as ``CUDA_VISIBLE_DEVICES`` takes them; a job gets one for each of its ranks, or
        as many as it needs, and all of them where that is more than there are
    """

    def __init__(self, slots: int = 1, gpus: Sequence[str] = ()) -> None:
        self._slots, self._gpus = slots, tuple(gpus)
        self._free = list(gpus)
        cores = sorted(os.sched_getaffinity(0))
        size = len(cores) // slots
        self._shares = [cores[size * slot : size * (slot + 1)] for slot in range(slots)]
        self._waiting: deque[Job] = deque()
        self._running: dict[str, _Running] = {}
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
        refuse_missing_nodes(context.site.nodes, os.environ)
        # More than one job at once on CPU makes trials disturb one another; a user who asks for it gets it.
        return cls(context.slots or len(gpus) or 1, gpus)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs in order and start as many as there is room for."""
        self._waiting.extend(jobs)
        self._states.update({job.name: JobState.PENDING for job in jobs})
        self._start_waiting()

    def poll(self) -> dict[str, JobState]:
        """Note which jobs have ended, start waiting ones in their place, and return all states."""
        for name, job in list(self._running.items()):
            code = job.process.poll()
            if code is not None:
                self._states[name] = JobState.ENDED if code == 0 else JobState.FAILED
                del self._running[name]
                self._give_back(job)
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
        for job in running.values():
            job.process.terminate()
        deadline = time.monotonic() + GRACE_S
        for job in running.values():
            _end(job.process, deadline)
            self._give_back(job)
        self._states.update(dict.fromkeys([*cancelled, *running], JobState.CANCELLED))
        return len(cancelled) + len(running)

    def _give_back(self, job: _Running) -> None:
        self._free += job.gpus
        self._shares += job.shares

    def _start_waiting(self) -> None:
        while self._waiting:
            ranks = max(1, self._waiting[0].ranks)
            wanted = min(max(ranks, self._waiting[0].gpus), len(self._gpus))
            slots = 1 if self._gpus else min(ranks, self._slots)
            if slots > len(self._shares) or wanted > len(self._free):
                return  # in order: one that fits might else keep a larger job waiting for ever
            job, gpus = self._waiting.popleft(), self._free[:wanted]
            del self._free[:wanted]
            shares = [self._shares.pop(0) for _ in range(slots)]
            own = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
            job.log.parent.mkdir(parents=True, exist_ok=True)
            with job.log.open("ab") as log, _kept_to([core for share in shares for core in share]):
                process = subprocess.Popen(
                    job.command,
                    env={**os.environ, **own, **job.env},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C in the terminal is for the launcher, which then asks nicely
                    start_new_session=True,
                )
            self._running[job.name] = _Running(process, gpus, shares)
            self._states[job.name] = JobState.RUNNING


@contextmanager
def _kept_to(cores: Sequence[int]) -> Iterator[None]:
    """What is started meanwhile works on these cores; on all of ours where there are none."""
    ours = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cores or ours)
        yield
    finally:
        os.sched_setaffinity(0, ours)


def gpus_here(count: int, visible: str) -> list[str]:
    """Names of the GPUs of this machine that are ours.

    Parameters
    ----------
    count : how many this process sees
    visible : ``CUDA_VISIBLE_DEVICES`` of this process
    """
    # An allocation on a shared node names the GPUs that are ours; counting from 0 would take another user's.
    names = visible.split(",") if visible else [str(number) for number in range(count)]
    # A process sees one MIG instance, and the next process may have the next.
    ours = names if count and names[0].startswith("MIG-") else names[:count]
    return [name.strip() for name in ours]


def _end(process: subprocess.Popen[bytes], deadline: float) -> None:
    try:
        process.wait(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class InProcessExecutor(Executor):
    """Runs one waiting job in each `poll`.

    Parameters
    ----------
    call : does what a job's command would do; its exceptions are the caller's to see
    """

    def __init__(self, call: Callable[[Job], None]) -> None:
        self._call = call
        self._waiting: deque[Job] = deque()
        self._states: dict[str, JobState] = {}

    @classmethod
    def of(cls, context: ExecutorContext) -> InProcessExecutor:
        """Make one that does what jobs' commands would do."""
        return cls(context.call)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs in order."""
        self._waiting.extend(jobs)
        self._states.update({job.name: JobState.PENDING for job in jobs})

    def poll(self) -> dict[str, JobState]:
        """Run the next job to its end."""
        if self._waiting:
            job = self._waiting.popleft()
            self._states[job.name] = JobState.FAILED  # unless it returns
            self._call(job)
            self._states[job.name] = JobState.ENDED
        return dict(self._states)

    def cancel(self, names: Iterable[str] | None = None) -> int:
        """Drop jobs that have not run, all by default; how many that were."""
        chosen = set(self._states if names is None else names)
        dropped = [job for job in self._waiting if job.name in chosen]
        self._waiting = deque(job for job in self._waiting if job.name not in chosen)
        self._states.update({job.name: JobState.CANCELLED for job in dropped})
        return len(dropped)


NO_GPU = ("env", "CUDA_VISIBLE_DEVICES=")
"""What a step of a job without GPUs begins with: without device cgroups it would see all of them, and srun
takes the variable from a step's environment if the job was given none."""


@dataclass(frozen=True)
class Allocation:
    """Nodes of one job, of which the first runs this process.

    Attributes
    ----------
    nodes : names, as Slurm gives them
    address : where processes on the other nodes find the first one
    cpus : cores of a task, None where the job does not say
    hides_gpus : whether those of the nodes are not to be seen
    """

    nodes: tuple[str, ...]
    address: str
    cpus: str | None = None
    hides_gpus: bool = False

    @classmethod
    def of(cls, nodes: int, environ: Mapping[str, str] = os.environ) -> Allocation:
        """Read the first `nodes` of the allocation from Slurm's variables.

        Raises
        ------
        ClusterError
            This is no allocation of so many nodes, or Slurm does not answer.
        """
        refuse_missing_nodes(nodes, environ)
        client = SlurmClient()
        names = client.hostnames(environ["SLURM_JOB_NODELIST"])[:nodes]
        facts = client.run("scontrol", "--oneliner", "show", "node", names[0])
        # A name of Slurm's own may be none that the network knows.
        found = re.search(r"\bNodeAddr=(\S+)", facts)
        return cls(
            tuple(names),
            found[1] if found else names[0],
            environ.get("SLURM_CPUS_PER_TASK"),
            environ.get("CUDA_VISIBLE_DEVICES") == "",
        )

    def command(self, node: str, program: Sequence[str]) -> list[str]:
        """Put the command line that runs a program next to what else this job does on a node."""
        # Since Slurm 20.11 a step has its resources to itself unless it says that it overlaps.
        cpus = [f"--cpus-per-task={self.cpus}"] if self.cpus else []
        one = ["--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", *cpus]
        return ["srun", *one, "--export=ALL", *(NO_GPU if self.hides_gpus else ()), *program]


def refuse_missing_nodes(nodes: int, environ: Mapping[str, str]) -> None:
    """Refuse `nodes` where this process has fewer.

    Raises
    ------
    ClusterError
        It has: the message names the field.
    """
    have = int(environ.get("SLURM_JOB_NUM_NODES", "1")) if "SLURM_JOB_NODELIST" in environ else 1
    if nodes > have:
        place = f"this allocation has {have}" if "SLURM_JOB_NODELIST" in environ else "this is one machine"
        raise ClusterError(
            f"cluster.nodes={nodes}, and {place}; choose cluster=slurm, or allocate more with --nodes"
        )


def free_port() -> int:
    """A port of this node that no process listens at now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
