"""The processes of a sweep by what they do, found in /proc: whoever is to be struck is asked for by role."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Role(StrEnum):
    """What a process of a sweep is for."""

    COMMAND = "command"
    PACK = "pack"
    SERVER = "server"
    TRIAL = "trial"
    PUBLISHER = "publisher"
    ELEMENT = "element"  # of a Slurm array: the parent of a pack


@dataclass(frozen=True)
class Process:
    """A running process; `started`, in clock ticks, tells it from a later one of its number."""

    pid: int
    role: Role
    parent: int
    started: int

    def signal(self, number: signal.Signals, *, group: bool = False) -> bool:
        """Send a signal, to its whole process group if asked; False where it has ended."""
        if _started(self.pid) != self.started:
            return False
        try:
            (os.killpg if group else os.kill)(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


_SIGNS = (
    (Role.COMMAND, "perfsweep"),
    (Role.PACK, "perfsweep.pipelines.execution.pack"),
    (Role.PACK, "perfsweep.pipelines.execution.shared_job"),
    (Role.SERVER, "perfsweep.pipelines.trial.fork_server"),
    (Role.TRIAL, "perfsweep.pipelines.trial.process"),
    (Role.PUBLISHER, "perfsweep.pipelines.publish.worker"),
    (Role.ELEMENT, "slurm/element.py"),
)


def running(mark: str) -> dict[Role, list[Process]]:
    """Processes that carry a mark in their environment, by role, oldest first.

    What a fork server has forked keeps its command line: it is told by its parent.
    """
    found: list[Process] = []
    for entry in Path("/proc").glob("[0-9]*"):
        one = _process(entry, mark)
        if one:
            found.append(one)
    servers = {one.pid for one in found if one.role is Role.SERVER}
    told = [
        Process(one.pid, Role.TRIAL, one.parent, one.started) if one.parent in servers else one
        for one in found
    ]
    ordered = sorted(told, key=lambda one: (one.started, one.pid))
    return {role: [one for one in ordered if one.role is role] for role in Role}


def _process(entry: Path, mark: str) -> Process | None:
    try:
        line = (entry / "cmdline").read_bytes().split(b"\0")
        if mark.encode() not in (entry / "environ").read_bytes():
            return None
    except OSError:
        return None
    words = {word.decode(errors="replace") for word in line[:8]}
    role = next(
        (r for r, sign in _SIGNS if any(word == sign or word.endswith(f"/{sign}") for word in words)), None
    )
    facts = _facts(int(entry.name))
    return None if role is None or facts is None else Process(int(entry.name), role, *facts)


def _facts(pid: int) -> tuple[int, int] | None:
    """Parent and start of a process, in clock ticks since boot; None where it runs no more."""
    try:
        state, parent, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else (int(parent), int(rest[17]))


def _started(pid: int) -> int | None:
    facts = _facts(pid)
    return facts[1] if facts else None
