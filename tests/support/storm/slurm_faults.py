"""Faults of Slurm: jobs cancelled and requeued, daemons and nodes lost, clients that lie."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from dev_slurm import accounting
from dev_slurm.cluster import DevCluster
from dev_slurm.daemons import pid_in

from perfsweep.slurm.errors import ClusterError
from storm.fault import FAULTS, Fault, NoTarget, fault

if TYPE_CHECKING:
    from storm.world import World

TIMED_OUT = (
    'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1'
)

LIES: dict[str, tuple[str, str, str]] = {
    "sbatch_submits_and_denies": (
        "sbatch",
        "sbatch submits and says that it timed out",
        f'$real "$@" > /dev/null; {TIMED_OUT}',
    ),
    "sbatch_hangs": ("sbatch", "sbatch does not come back", "exec sleep 300"),
    "sbatch_fails": (
        "sbatch",
        "sbatch does not reach the controller",
        'echo "sbatch: error: Unable to contact slurm controller (connect failure)" >&2; exit 1',
    ),
    "sbatch_talks": (
        "sbatch",
        "sbatch prints a banner and no number",
        'echo "Welcome to the cluster!"; exit 0',
    ),
    "sbatch_banner": (
        "sbatch",
        "sbatch prints a banner before its answer",
        'echo "Node 17"; exec $real "$@"',
    ),
    "squeue_empty": ("squeue", "squeue answers nothing", "exit 0"),
    "squeue_fails": (
        "squeue",
        "squeue does not reach the controller",
        "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
    ),
    "squeue_talks": (
        "squeue",
        "squeue answers half lines and garbage",
        '$real "$@" | cut -c1-30; echo "#?"; exit 0',
    ),
    "squeue_slow": ("squeue", "squeue takes 5 s", 'sleep 5; exec $real "$@"'),
    "scancel_fails": ("scancel", "scancel fails", "echo 'scancel: error: Kill job error' >&2; exit 1"),
}
"""Stand-ins: the client, what it does, and how; ``$real`` is the real one."""


class Job(NamedTuple):
    """A job of ours as squeue has it; `name` is the element of its array."""

    name: str
    id: str
    state: str
    node: str


def jobs(cluster: DevCluster, *states: str) -> list[Job]:
    """Jobs in these states, all by default, the oldest first.

    Raises
    ------
    NoTarget
        Slurm does not answer.
    """
    try:
        text = cluster.client("squeue", "--me", "-h", "-r", "-o", "%i|%A|%T|%N")
    except ClusterError:
        raise NoTarget from None
    found = [Job(*line.split("|")) for line in text.splitlines() if line.count("|") == 3]
    return sorted(one for one in found if not states or one.state in states)


def one_of(world: World, rng: Random, *states: str) -> Job:
    """Draw a job.

    Raises
    ------
    NoTarget
        There is none, or no Slurm.
    """
    assert world.cluster
    found = jobs(world.cluster, *states)
    if not found:
        raise NoTarget
    return found[rng.randrange(len(found))]


def told(cluster: DevCluster, *words: str) -> None:
    """Have a client do something.

    Raises
    ------
    NoTarget
        It could not: what was to be struck has just ended.
    """
    try:
        cluster.client(*words)
    except ClusterError:
        raise NoTarget from None


def start_waiting(cluster: DevCluster) -> None:
    """Skip the two minutes that requeued jobs wait, where the old start is gone by now."""
    with suppress(NoTarget):
        for job in jobs(cluster, "PENDING"):
            with suppress(NoTarget):
                told(cluster, "scontrol", "update", f"JobId={job.id}", "StartTime=now")


def lies(programs: Path, name: str) -> Iterator[str]:
    """Put a stand-in of `LIES` before a client."""
    client, _, body = LIES[name]
    yield from stand_in(programs, client, body)


def stand_in(programs: Path, client: str, body: str) -> Iterator[str]:
    """Put lines of shell before a client."""
    file = programs / client
    if file.exists():
        raise NoTarget
    real = shutil.which(client)
    fresh = file.with_suffix(".new")
    fresh.write_text(f"#!/bin/sh\nreal={real}\necho x >> {file}.calls\n{body}\n")
    fresh.chmod(0o755)
    fresh.replace(file)
    try:
        yield client
    finally:
        file.unlink()


def _lie(name: str, world: World, rng: Random) -> Iterator[str]:
    yield from lies(world.programs, name)


for _name, (_, _doc, _) in LIES.items():
    FAULTS[_name] = Fault(_name, _doc, partial(_lie, _name), (2.0, 12.0), slurm=True, weight=1)


@fault("scancel of a job, running or pending", slurm=True)
def cancel_job(world: World, rng: Random) -> Iterator[str]:
    """By hand, behind the command's back."""
    assert world.cluster
    job = one_of(world, rng)
    told(world.cluster, "scancel", job.name)
    yield f"{job.name}, {job.state.lower()}"


@fault("SIGKILL to all processes of a job's step", slurm=True)
def kill_step(world: World, rng: Random) -> Iterator[str]:
    """What a memory limit of a cgroup does."""
    assert world.cluster
    job = one_of(world, rng, "RUNNING")
    told(world.cluster, "scancel", "--signal=KILL", f"{job.id}.0")
    yield job.name


@fault("SIGUSR2 to a job, as before its time limit", slurm=True)
def warn_job(world: World, rng: Random) -> Iterator[str]:
    """It ends after its round, and queues itself again."""
    assert world.cluster
    job = one_of(world, rng, "RUNNING")
    told(world.cluster, "scancel", "--signal=USR2", job.name)
    yield job.name


@fault("scontrol requeue of a running job", slurm=True)
def requeue_job(world: World, rng: Random) -> Iterator[str]:
    """Its first start may still write while the second begins."""
    assert world.cluster
    job = one_of(world, rng, "RUNNING")
    told(world.cluster, "scontrol", "requeue", job.name)
    yield job.name


@fault("a job is suspended, and resumed", (2.0, 8.0), slurm=True)
def suspend_job(world: World, rng: Random) -> Iterator[str]:
    """Slurm stops its processes."""
    assert world.cluster
    job = one_of(world, rng, "RUNNING")
    told(world.cluster, "scontrol", "suspend", job.id)
    try:
        yield job.name
    finally:
        with suppress(NoTarget):
            told(world.cluster, "scontrol", "resume", job.id)


@fault("a pending job is held, and released", (2.0, 8.0), slurm=True)
def hold_job(world: World, rng: Random) -> Iterator[str]:
    """By a user or an administrator."""
    assert world.cluster
    job = one_of(world, rng, "PENDING")
    told(world.cluster, "scontrol", "hold", job.id)
    try:
        yield job.name
    finally:
        with suppress(NoTarget):
            told(world.cluster, "scontrol", "release", job.id)


@fault("a node is set down, and comes back", (3.0, 12.0), slurm=True)
def node_down(world: World, rng: Random) -> Iterator[str]:
    """By its administrator: Slurm ends its jobs at once."""
    assert world.cluster
    node = rng.choice(world.cluster.settings.node_names)
    told(world.cluster, "scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=storm")
    try:
        yield node
    finally:
        resume(world.cluster, node)


@fault("a node is drained, and comes back", (3.0, 12.0), slurm=True, weight=1)
def node_drained(world: World, rng: Random) -> Iterator[str]:
    """Its jobs go on, and no other starts there."""
    assert world.cluster
    node = rng.choice(world.cluster.settings.node_names)
    told(world.cluster, "scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=storm")
    try:
        yield node
    finally:
        resume(world.cluster, node)


def resume(cluster: DevCluster, node: str) -> None:
    """Give a node back, whether or not the controller answers at once."""
    for _ in range(20):
        try:
            cluster.client("scontrol", "update", f"NodeName={node}", "State=RESUME")
            return
        except ClusterError as error:
            if "Invalid node state" in str(error):
                return  # it is back by itself
            time.sleep(0.5)


@fault("SIGKILL to slurmd, which starts again later", (8.0, 20.0), slurm=True, weight=1)
def slurmd_killed(world: World, rng: Random) -> Iterator[str]:
    """The jobs of its node go on; after SlurmdTimeout Slurm starts them again elsewhere."""
    assert world.cluster
    node = rng.choice(world.cluster.settings.node_names)
    _kill(world.cluster, f"slurmd-{node}")
    try:
        yield node
    finally:
        with suppress(ClusterError):
            world.cluster.start_node(node)


@fault("SIGKILL to slurmctld, which starts again later", (2.0, 12.0), slurm=True)
def slurmctld_killed(world: World, rng: Random) -> Iterator[str]:
    """What it had not saved it has forgotten."""
    assert world.cluster
    _kill(world.cluster, "slurmctld")
    try:
        yield "slurmctld"
    finally:
        start_controller(world.cluster)


@fault("SIGKILL to slurmdbd, which starts again later", (4.0, 15.0), slurm=True, weight=1)
def slurmdbd_killed(world: World, rng: Random) -> Iterator[str]:
    """Accounting is silent meanwhile."""
    assert world.cluster
    _kill(world.cluster, "slurmdbd")
    try:
        yield "slurmdbd"
    finally:
        with suppress(ClusterError):
            accounting.start(world.cluster.settings, world.cluster.env)


def _kill(cluster: DevCluster, daemon: str) -> None:
    if pid_in(cluster.settings.pid_file(daemon)) is None:
        raise NoTarget
    try:
        cluster.kill(daemon)
    except ClusterError:
        raise NoTarget from None


def start_controller(cluster: DevCluster) -> None:
    """Start slurmctld, whose port its dead predecessor may hold for a moment."""
    for _ in range(20):
        try:
            cluster.start_controller()
            return
        except ClusterError:
            time.sleep(0.5)


def mended(cluster: DevCluster) -> None:
    """Bring everything back: daemons, nodes, jobs that are held or suspended."""
    start_controller(cluster)
    if cluster.settings.accounting:
        with suppress(ClusterError):
            accounting.start(cluster.settings, cluster.env)
    for node in cluster.settings.node_names:
        with suppress(ClusterError):
            cluster.start_node(node)
        resume(cluster, node)
    with suppress(NoTarget):
        for job in jobs(cluster, "SUSPENDED"):
            with suppress(NoTarget):
                told(cluster, "scontrol", "resume", job.id)
    release(cluster)


def release(cluster: DevCluster) -> None:
    """Release what is held; Slurm holds a job too that it started twice when its controller was killed."""
    with suppress(NoTarget):
        for job in jobs(cluster, "PENDING"):
            with suppress(NoTarget):
                told(cluster, "scontrol", "release", job.id)
