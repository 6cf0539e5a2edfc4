"""The processes of a sweep by what they do: a fault asks for its target by role."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import psutil


class Role(StrEnum):
    """What a process of a sweep is for."""

    COMMAND = "command"
    PACK = "pack"
    SERVER = "server"
    TRIAL = "trial"
    PUBLISHER = "publisher"
    ELEMENT = "element"  # of a Slurm array: the parent of a pack


SIGNS = {
    "perfsweep": Role.COMMAND,
    "perfsweep.pipelines.execution.pack": Role.PACK,
    "perfsweep.pipelines.execution.shared_job": Role.PACK,
    "perfsweep.pipelines.trial.fork_server": Role.SERVER,
    "perfsweep.pipelines.trial.process": Role.TRIAL,
    "perfsweep.pipelines.publish.worker": Role.PUBLISHER,
    "element.py": Role.ELEMENT,
}


def alive() -> Iterator[tuple[psutil.Process, list[str], str]]:
    """Every process that runs and may be looked at, with its command line and its environment as one text."""
    for one in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if one.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                variables = Path(f"/proc/{one.pid}/environ").read_bytes()
                yield one, one.cmdline(), variables.decode(errors="replace")


def running(mark: str, role: Role) -> list[psutil.Process]:
    """Processes of a role that carry a mark in their environment, oldest first.

    What a fork server has forked keeps its command line: it is told by its parent.
    """
    ours = {one.pid: (one, _role(words)) for one, words, variables in alive() if mark in variables}
    found = []
    for one, own in ours.values():
        with suppress(psutil.Error):
            _, of_parent = ours.get(one.ppid(), (None, None))
            if role is (Role.TRIAL if of_parent is Role.SERVER else own):
                found.append((one.create_time(), one.pid, one))
    return [one for *_, one in sorted(found)]


def _role(words: list[str]) -> Role | None:
    return next((SIGNS[name] for word in words[:8] if (name := Path(word).name) in SIGNS), None)


def signalled(process: psutil.Process, number: signal.Signals) -> bool:
    """Send a signal; False where the process has ended, even if its number is another one's now."""
    with suppress(psutil.Error):
        process.send_signal(number)
        return True
    return False
