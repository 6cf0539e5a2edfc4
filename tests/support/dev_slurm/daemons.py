"""Starting and stopping daemons of ours by their pid files; every wait has a deadline."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from perfsweep.slurm.errors import ClusterError

STEP_S = 0.01
"""Pause between two looks while waiting for a daemon: a cluster comes up in some of these."""


def binary(name: str) -> str:
    """Path of a daemon or client; daemons lie in sbin, which an ordinary user's PATH lacks.

    Raises
    ------
    ClusterError
        It is not installed; the message names the package.
    """
    found = shutil.which(name) or shutil.which(name, path="/usr/local/sbin:/usr/sbin:/sbin")
    if not found:
        package = {
            "munged": "munge",
            "mungekey": "munge",
            "mariadbd": "mariadb-server",
            "slurmdbd": "slurmdbd",
        }.get(name, "slurm-wlm")
        raise ClusterError(
            f"{name} is not installed: `make slurm-install` as root, or apt-get install {package}"
        )
    return found


def daemonise(command: Sequence[str], env: Mapping[str, str], log: Path, timeout_s: float = 15) -> None:
    """Run a command that puts itself into the background, with none of its streams held by us.

    Raises
    ------
    ClusterError
        It failed or did not return in time; the message carries the end of its log.
    """
    with log.open("ab") as out:
        try:
            done = subprocess.run(
                command,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=timeout_s,
                check=False,
                cwd="/",
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"{command[0]} did not start within {timeout_s:g} s; see {log}") from error
    if done.returncode:
        tail = log.read_text(errors="replace").strip().splitlines()[-3:]
        raise ClusterError(f"{command[0]} ended with status {done.returncode}; see {log}: {' / '.join(tail)}")


def spawn(command: Sequence[str], env: Mapping[str, str], log: Path) -> int:
    """Start a command that stays in the foreground, in a session of its own; returns its process id."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd="/",
        )
    return process.pid


def until(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Wait for a condition.

    Raises
    ------
    ClusterError
        It did not hold in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} did not happen within {timeout_s:g} s")
        time.sleep(STEP_S)


def pid_in(file: Path) -> int | None:
    """The live process that a pid file names, or None."""
    try:
        pid = int(file.read_text())
    except (OSError, ValueError):
        return None
    return pid if alive(pid) else None


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has reaped yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


def stop(pids: Iterable[int], timeout_s: float = 10) -> None:
    """SIGTERM, and SIGKILL for what is left after the time-out."""
    left = [pid for pid in pids if _signalled(pid, signal.SIGTERM)]
    deadline = time.monotonic() + timeout_s
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if alive(pid)]
        time.sleep(STEP_S)
    for pid in left:
        _signalled(pid, signal.SIGKILL)


def processes_of_jobs(conf: Path) -> list[int]:
    """Processes that jobs of this cluster left behind: slurmstepd and its children, by their environment."""
    ours = f"SLURM_CONF={conf}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if ours in variables and any(variable.startswith(b"SLURM_JOB_ID=") for variable in variables):
            found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def _signalled(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
