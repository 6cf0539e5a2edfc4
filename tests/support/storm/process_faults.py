"""Faults of processes: killed, asked to end, stopped for a while; a clock that moves; a second command."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from bench import command

from storm.fault import FAULTS, Fault, NoTarget, fault
from storm.processes import Process, Role

if TYPE_CHECKING:
    from storm.world import World

DAY_S = 86400.0
PATIENCE_S = 120.0
"""How long a command that only looks may take on a loaded machine."""


def one_of(world: World, rng: Random, role: Role) -> Process:
    """Draw a running process of a role.

    Raises
    ------
    NoTarget
        There is none.
    """
    found = world.processes(role)
    if not found:
        raise NoTarget
    return found[rng.randrange(len(found))]


def _signal(role: Role, number: signal.Signals, world: World, rng: Random) -> Iterator[str]:
    chosen = one_of(world, rng, role)
    if not chosen.signal(number):
        raise NoTarget
    yield f"{role.value} {chosen.pid}"


def _stop(role: Role, world: World, rng: Random) -> Iterator[str]:
    chosen = one_of(world, rng, role)
    if not chosen.signal(signal.SIGSTOP):
        raise NoTarget
    try:
        yield f"{role.value} {chosen.pid}"
    finally:
        chosen.signal(signal.SIGCONT)


def _register() -> None:
    """A fault for each role: killed and stopped; packs and the command are also asked to end."""
    for role in Role:
        slurm = role is Role.ELEMENT
        kill = partial(_signal, role, signal.SIGKILL)
        FAULTS[f"kill_{role}"] = Fault(f"kill_{role}", f"SIGKILL to a {role}", kill, slurm=slurm)
        stop = partial(_stop, role)
        doc = f"SIGSTOP to a {role}, SIGCONT later"
        FAULTS[f"stop_{role}"] = Fault(f"stop_{role}", doc, stop, (0.5, 8.0), slurm, weight=1)
    for role, name in ((Role.PACK, "SIGTERM"), (Role.COMMAND, "SIGTERM"), (Role.COMMAND, "SIGINT")):
        word = f"{'end' if name == 'SIGTERM' else 'interrupt'}_{role}"
        FAULTS[word] = Fault(
            word, f"{name} to a {role}", partial(_signal, role, signal.Signals[name]), weight=1
        )


_register()


@fault("the clock of all processes moves, by a second to three days, forward or back", (1.0, 15.0))
def move_clock(world: World, rng: Random) -> Iterator[str]:
    """Python's time of day alone: the times of files stay the kernel's."""
    seconds = rng.choice((-1, 1)) * rng.choice((1.0, 60.0, 3600.0, 3 * DAY_S)) * rng.uniform(0.5, 1.0)
    world.offset.write_text(str(seconds))
    try:
        yield f"by {seconds:+.0f} s"
    finally:
        world.offset.unlink(missing_ok=True)


def _beside(world: World, *arguments: str) -> tuple[int, str]:
    """Run a second command to its end; its status and both its streams."""
    done = subprocess.run(
        command(*arguments),
        env=world.env(),
        cwd=world.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    name = f"beside-{len([*(world.root / 'outputs').iterdir()]):04d}"
    (world.root / "outputs" / f"{name}.txt").write_text(done.stdout)
    (world.root / "outputs" / f"{name}.err").write_text(done.stderr)
    return done.returncode, done.stdout + done.stderr


@fault("`perfsweep status` from another shell", weight=1)
def look_beside(world: World, rng: Random) -> Iterator[str]:
    """It reads what others write at the same time."""
    if not (world.folder / "manifest.jsonl").exists():
        raise NoTarget
    status, _ = _beside(world, "status", str(world.folder))
    yield f"status {status}"


@fault("`perfsweep publish` from another shell", weight=1)
def publish_beside(world: World, rng: Random) -> Iterator[str]:
    """Two publishers of one sweep."""
    if not list(world.folder.glob("trials/*/*-r*/record.json")):
        raise NoTarget
    status, _ = _beside(world, "publish", str(world.folder))
    yield f"status {status}"
