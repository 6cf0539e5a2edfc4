"""Everything that a storm may bring, as one table: what is struck, for how long, and how it is restored."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import loopback
from dev_slurm import accounting
from dev_slurm.cluster import DevCluster
from loopback import Action

from perfsweep.slurm.errors import ClusterError
from storm.processes import Role, signalled

if TYPE_CHECKING:
    from storm.world import World

T = TypeVar("T")
DAY_S = 86400.0
PATIENCE_S = 120.0
"""How long a command that only looks may take on a loaded machine."""


class NoTarget(Exception):
    """There is nothing that this fault could strike now."""


Strike = Callable[["World", Random], Iterator[str]]
"""Strikes, yields what it has struck, and restores that when it is resumed."""


@dataclass(frozen=True)
class Fault:
    """A fault; `seconds` are the shortest and longest time that it lasts, zero where it is over at once."""

    name: str
    doc: str
    strike: Strike
    seconds: tuple[float, float] = (0.0, 0.0)
    weight: int = 2
    slurm: bool = False

    def shown(self, world: World, rng: Random) -> AbstractContextManager[str]:
        """Strike, and restore at the end of the block; `NoTarget` where there is nothing to strike."""
        return contextmanager(self.strike)(world, rng)


def one_of(found: Sequence[T], rng: Random) -> T:
    """Draw a target.

    Raises
    ------
    NoTarget
        There is none.
    """
    if not found:
        raise NoTarget
    return rng.choice(found)


# Processes, the clock, and a second command.


def send(role: Role, number: signal.Signals) -> Strike:
    """A signal to one process of a role; what it stopped goes on later."""

    def strike(world: World, rng: Random) -> Iterator[str]:
        chosen = one_of(world.processes(role), rng)
        if not signalled(chosen, number):
            raise NoTarget
        try:
            yield f"{role} {chosen.pid}"
        finally:
            if number is signal.SIGSTOP:
                signalled(chosen, signal.SIGCONT)

    return strike


def move_clock(world: World, rng: Random) -> Iterator[str]:
    """Python's time of day alone: the times of files stay the kernel's."""
    seconds = rng.choice((-1, 1)) * rng.choice((1.0, 60.0, 3600.0, 3 * DAY_S)) * rng.uniform(0.5, 1.0)
    world.offset.write_text(str(seconds))
    try:
        yield f"by {seconds:+.0f} s"
    finally:
        world.offset.unlink(missing_ok=True)


def second(name: str, needs: str) -> Strike:
    """A second command, run to its end, once the sweep has a file that it reads."""

    def strike(world: World, rng: Random) -> Iterator[str]:
        if not list(world.folder.glob(needs)):
            raise NoTarget
        output = world.outputs / f"second-{len([*world.outputs.iterdir()]):04d}.txt"
        process = world.start((name, str(world.folder)), output)
        yield f"status {process.wait(PATIENCE_S)}"

    return strike


# The disk.

CUT = (
    *("trials/*/*/record.json", "trials/*/*/iterations.npz", "trials/*/*/evidence.npz"),
    *("trials/*/*/spec.json", "trials/*/*/status.json", "packs/*/events.jsonl", "packs/*/attempts/*.json"),
    *("tables/*.parquet", "manifest.jsonl", "sweep.yaml", "submissions.jsonl", "report.html"),
    *("wandb/sweep.id", "wandb/.locks/*", "wandb/*/*.wandb", "wandb/*.json", "submissions/*/*.json"),
)
"""Files of a sweep that a crash of the machine may have left short; `code/` is what jobs run, and they refuse
what is not as it was submitted."""


def fill_disk(world: World, rng: Random) -> Iterator[str]:
    """Of the small disk that sweeps lie on alone."""
    if not world.small_disk or not world.folder.exists():
        raise NoTarget
    filler = world.runs / ".filler"
    try:
        with filler.open("wb", buffering=0) as out:
            try:
                while out.write(bytes(1 << 16)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            yield f"{out.tell() >> 20} MiB more"
    finally:
        filler.unlink(missing_ok=True)


def forbid_folder(world: World, rng: Random) -> Iterator[str]:
    """As after a change of group, or with a snapshot mounted in its place."""
    root = world.folder
    found = sorted(path for path in (root, *root.glob("*"), *root.glob("*/*")) if path.is_dir())
    folder = one_of([path for path in found if "code" not in path.parts], rng)
    mode, before = rng.choice((0o555, 0o555, 0o000)), folder.stat().st_mode & 0o777
    if before in (0o555, 0o000):
        raise NoTarget  # the same fault has it already, and knows how it was
    try:
        folder.chmod(mode)
        yield f"{folder.relative_to(world.runs)} to {mode:03o}"
    finally:
        with suppress(FileNotFoundError):
            folder.chmod(before)


def cut_file(world: World, rng: Random) -> Iterator[str]:
    """As a disk leaves it that had acknowledged what it had not written."""
    found = sorted(world.folder.glob(rng.choice(CUT)))
    file = one_of([path for path in found if path.is_file() and path.stat().st_size], rng)
    size = file.stat().st_size
    left = rng.randrange(size)
    try:
        os.truncate(file, left)
    except OSError:
        raise NoTarget from None
    yield f"{file.relative_to(world.runs)} at {left} of {size}"


def wandb(action: Action, status: int = 0) -> Strike:
    """The W&B server answers so to every request, those that bring rows, or those that ask."""

    def strike(world: World, rng: Random) -> Iterator[str]:
        where = rng.choice(("", "file_stream", "graphql"))
        with world.backend.showing(loopback.Fault(where, action, status=status)):
            yield f"for {where or 'every'} request"

    return strike


# Slurm.


class Job(NamedTuple):
    """A job of ours as squeue has it; `name` is the element of its array."""

    name: str
    id: str
    state: str
    node: str


def jobs(cluster: DevCluster, *states: str) -> list[Job]:
    """Jobs in these states, all by default, the oldest first; `NoTarget` where Slurm does not answer."""
    lines = told(cluster, "squeue", "--me", "-h", "-r", "-o", "%i|%A|%T|%N").splitlines()
    found = [Job(*line.split("|")) for line in lines if line.count("|") == 3]
    return sorted(one for one in found if not states or one.state in states)


def told(cluster: DevCluster, *words: str) -> str:
    """Have a client do something; `NoTarget` where what was to be struck has just ended."""
    try:
        return cluster.client(*words)
    except ClusterError:
        raise NoTarget from None


def on_jobs(cluster: DevCluster, state: str, *words: str, then: str = "") -> None:
    """Have a client do something with every job in a state that lets it."""
    with suppress(NoTarget):
        for job in jobs(cluster, state):
            with suppress(NoTarget):
                told(cluster, *words, job.id if not then else f"JobId={job.id}", *([then] if then else []))


def start_waiting(cluster: DevCluster) -> None:
    """Skip the two minutes that requeued jobs wait, where the old start is gone by now."""
    on_jobs(cluster, "PENDING", "scontrol", "update", then="StartTime=now")


def client(words: str, *states: str, undo: str = "") -> Strike:
    """One of Slurm's clients acts on a job in one of these states."""

    def strike(world: World, rng: Random) -> Iterator[str]:
        job = one_of(jobs(world.slurm, *states), rng)
        told(world.slurm, *words.format(job=job).split())
        try:
            yield f"{job.name}, {job.state.lower()}"
        finally:
            if undo:
                with suppress(NoTarget):
                    told(world.slurm, *undo.format(job=job).split())

    return strike


def node_in(state: str) -> Strike:
    """A node is set into a state by its administrator."""

    def strike(world: World, rng: Random) -> Iterator[str]:
        node = rng.choice(world.slurm.settings.node_names)
        told(world.slurm, "scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=storm")
        try:
            yield node
        finally:
            resume(world.slurm, node)

    return strike


def resume(cluster: DevCluster, node: str) -> None:
    """Give a node back, after the controller where another fault has killed that."""
    for _ in range(20):
        try:
            cluster.client("scontrol", "update", f"NodeName={node}", "State=RESUME")
            return
        except ClusterError as error:
            if "Invalid node state" in str(error):
                return  # it is back by itself
            start_controller(cluster)


def start_controller(cluster: DevCluster) -> None:
    """Start slurmctld, whose port its dead predecessor may hold for a moment.

    One that was killed before it had saved its associations does not start without slurmdbd.
    """
    for _ in range(20):
        if cluster.settings.accounting:
            start_accounting(cluster)
        try:
            cluster.start_controller()
            return
        except ClusterError:
            time.sleep(0.5)


def start_accounting(cluster: DevCluster) -> None:
    """Start slurmdbd."""
    with suppress(ClusterError):
        accounting.start(cluster.settings, cluster.env)


def start_node(cluster: DevCluster, node: str) -> None:
    """Start the slurmd of a node."""
    with suppress(ClusterError):
        cluster.start_node(node)


def kill_daemon(name: str, again: Callable[[DevCluster], None] | None = None) -> Strike:
    """SIGKILL to a daemon of Slurm; `again` starts it, where it is none of a node."""

    def strike(world: World, rng: Random) -> Iterator[str]:
        node = "" if again else rng.choice(world.slurm.settings.node_names)
        try:
            world.slurm.kill(f"{name}-{node}" if node else name)
        except ClusterError:
            raise NoTarget from None
        try:
            yield node or name
        finally:
            again(world.slurm) if again else start_node(world.slurm, node)

    return strike


def restored(cluster: DevCluster) -> None:
    """Bring everything back: daemons, nodes, jobs that are held or suspended."""
    start_controller(cluster)
    for node in cluster.settings.node_names:
        start_node(cluster, node)
        resume(cluster, node)
    on_jobs(cluster, "SUSPENDED", "scontrol", "resume")
    release(cluster)


def release(cluster: DevCluster) -> None:
    """Release what is held; Slurm holds a job too that it started twice when its controller was killed."""
    on_jobs(cluster, "PENDING", "scontrol", "release")


TIMED_OUT = (
    'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1'
)
UNREACHABLE = "Unable to contact slurm controller (connect failure)"

LIES: Mapping[str, tuple[str, str]] = {
    "sbatch_submits_and_denies": (
        "submits and says that it timed out",
        f'$real "$@" > /dev/null; {TIMED_OUT}',
    ),
    "sbatch_hangs": ("does not come back", "exec sleep 300"),
    "sbatch_fails": ("does not reach the controller", f'echo "sbatch: error: {UNREACHABLE}" >&2; exit 1'),
    "sbatch_talks": ("prints a banner and no number", 'echo "Welcome to the cluster!"; exit 0'),
    "sbatch_banner": ("prints a banner before its answer", 'echo "Node 17"; exec $real "$@"'),
    "squeue_empty": ("answers nothing", "exit 0"),
    "squeue_fails": (
        "does not reach the controller",
        f"echo 'slurm_load_jobs error: {UNREACHABLE}' >&2; exit 1",
    ),
    "squeue_talks": ("answers half lines and garbage", '$real "$@" | cut -c1-30; echo "#?"; exit 0'),
    "squeue_slow": ("takes 5 s", 'sleep 5; exec $real "$@"'),
    "scancel_fails": ("fails", "echo 'scancel: error: Kill job error' >&2; exit 1"),
}
"""Scripts in the place of clients, which their names begin with: ``$real`` is the real one."""


@contextmanager
def stand_in(programs: Path, client: str, body: str) -> Iterator[str]:
    """Put lines of shell before a client."""
    file = programs / client
    if file.exists():
        raise NoTarget
    fresh = file.with_suffix(".new")
    fresh.write_text(f"#!/bin/sh\nreal={shutil.which(client)}\necho x >> {file}.calls\n{body}\n")
    fresh.chmod(0o755)
    fresh.replace(file)
    try:
        yield client
    finally:
        file.unlink()


def lie(name: str) -> Strike:
    """A client of Slurm does something else."""

    def strike(world: World, rng: Random) -> Iterator[str]:
        with stand_in(world.programs, name.partition("_")[0], LIES[name][1]) as client:
            yield client

    return strike


def _table() -> Iterator[Fault]:
    for role in Role:
        slurm = role is Role.ELEMENT
        yield Fault(f"kill_{role}", f"SIGKILL to a {role}", send(role, signal.SIGKILL), slurm=slurm)
        doc = f"SIGSTOP to a {role}, SIGCONT later"
        yield Fault(f"stop_{role}", doc, send(role, signal.SIGSTOP), (0.5, 8.0), 1, slurm)
    yield Fault("end_pack", "SIGTERM to a pack", send(Role.PACK, signal.SIGTERM), weight=1)
    yield Fault("end_command", "SIGTERM to a command", send(Role.COMMAND, signal.SIGTERM), weight=1)
    yield Fault("interrupt_command", "SIGINT to a command", send(Role.COMMAND, signal.SIGINT), weight=1)
    for name, doc, strike, seconds, weight in (
        ("move_clock", "the clock of all processes moves, by a second to three days, forward or back",
         move_clock, (1.0, 15.0), 2),
        ("look_beside", "`perfsweep status` from another shell", second("status", "manifest.jsonl"),
         (0, 0), 1),
        ("publish_beside", "`perfsweep publish` from another shell",
         second("publish", "trials/*/*-r*/record.json"), (0, 0), 1),
        ("fill_disk", "the disk is full", fill_disk, (1.0, 10.0), 2),
        ("forbid_folder", "a folder of the sweep cannot be written, or not even read", forbid_folder,
         (1.0, 8.0), 2),
        ("cut_file", "a file ends at a random byte", cut_file, (0, 0), 4),
        ("wandb_hangs", "the W&B server hangs", wandb(Action.HANG), (2.0, 20.0), 1),
        ("wandb_drops", "the W&B server drops connections", wandb(Action.DROP), (2.0, 20.0), 1),
        ("wandb_drops_after", "the W&B server drops connections after their effect",
         wandb(Action.DROP_AFTER), (2.0, 20.0), 1),
        ("wandb_cuts", "the W&B server sends half an answer", wandb(Action.TRUNCATE), (2.0, 20.0), 1),
        ("wandb_errs", "the W&B server answers 500", wandb(Action.STATUS, 500), (2.0, 20.0), 1),
        ("wandb_limits", "the W&B server answers 429", wandb(Action.STATUS, 429), (2.0, 20.0), 1),
        ("wandb_refuses", "the W&B server answers 401", wandb(Action.STATUS, 401), (2.0, 20.0), 1),
    ):  # fmt: skip
        yield Fault(name, doc, strike, seconds, weight)
    for name, doc, strike, seconds, weight in (
        ("cancel_job", "scancel of a job, running or pending", client("scancel {job.name}"), (0, 0), 2),
        ("kill_step", "SIGKILL to all processes of a job's step, as by a cgroup's memory limit",
         client("scancel --signal=KILL {job.id}.0", "RUNNING"), (0, 0), 2),
        ("warn_job", "SIGUSR2 to a job, as before its time limit",
         client("scancel --signal=USR2 {job.name}", "RUNNING"), (0, 0), 2),
        ("requeue_job", "scontrol requeue of a running job, whose first start may still write",
         client("scontrol requeue {job.name}", "RUNNING"), (0, 0), 2),
        ("suspend_job", "a job is suspended, and resumed",
         client("scontrol suspend {job.id}", "RUNNING", undo="scontrol resume {job.id}"), (2.0, 8.0), 2),
        ("hold_job", "a pending job is held, and released",
         client("scontrol hold {job.id}", "PENDING", undo="scontrol release {job.id}"), (2.0, 8.0), 2),
        ("node_down", "a node is set down, and comes back", node_in("DOWN"), (3.0, 12.0), 2),
        ("node_drained", "a node is drained, and comes back", node_in("DRAIN"), (3.0, 12.0), 1),
        ("slurmd_killed", "SIGKILL to slurmd, which starts again later; its jobs go on, until SlurmdTimeout",
         kill_daemon("slurmd"), (8.0, 20.0), 1),
        ("slurmctld_killed", "SIGKILL to slurmctld, which starts again later",
         kill_daemon("slurmctld", start_controller), (2.0, 12.0), 2),
        ("slurmdbd_killed", "SIGKILL to slurmdbd, which starts again later",
         kill_daemon("slurmdbd", start_accounting), (4.0, 15.0), 1),
        *((name, f"{name.partition('_')[0]} {doc}", lie(name), (2.0, 12.0), 1)
          for name, (doc, _) in LIES.items()),
    ):  # fmt: skip
        yield Fault(name, doc, strike, seconds, weight, slurm=True)


FAULTS: Mapping[str, Fault] = {one.name: one for one in _table()}
"""Every fault that a storm may bring, by name."""
