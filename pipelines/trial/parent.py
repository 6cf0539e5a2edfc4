"""A measured process and its family: how a forked one becomes its own, ends with its parent, and answers."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from perfsweep.pipelines.store.trial_schema import UNWRITTEN, Failure, Outcome


@dataclass(frozen=True)
class Ready:
    """What a process says once it is warm.

    Attributes
    ----------
    taken_bytes : memory that it keeps from other arms
    rests : whether nothing of it works while it waits
    step_ns : typical time of an iteration, or of a step of a job
    steps : iterations of its region
    spares : whether iterations may be done without being timed: those of a job are all part of it
    rare : places of the cadence that take longer than others; None where warm-up has not seen all of them
    """

    taken_bytes: int
    rests: bool
    step_ns: int
    steps: int
    spares: bool
    rare: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Turn:
    """Leave to work: iterations that are to be timed, after some that are not."""

    steps: int
    untimed: int = 0


@dataclass(frozen=True)
class Reply:
    """What a process that takes turns says: at the end of a turn nothing is set.

    `own_s`: its region is whole, with so much CPU time since it was ready.
    """

    outcome: Outcome = Outcome.OK
    failure: Failure | None = None
    ready: Ready | None = None
    own_s: float | None = None


def node_name() -> str:
    """The node of this process, as Slurm calls it."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel end this process when its parent dies, so that a killed pack leaves nothing running.

    `number` is the signal for it: SIGCONT lets one that was stopped see the end and clean up.
    """
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, number)


def end_with_parent() -> None:
    """End this process when its parent dies, though it is stopped, and have what it has started see that.

    W&B's client looks for its parent from time to time and removes its socket, which one that is stopped or
    killed cannot: a suspended job stops it.
    """
    parent = os.getppid()

    def look(*_: object) -> None:
        if os.getppid() != parent:
            _signal_all(descendants([os.getpid()]), signal.SIGCONT)
            os._exit(1)

    signal.signal(signal.SIGCONT, look)
    die_with_parent(signal.SIGCONT)


def take_workers_along() -> None:
    """Have what this process forks end with it: one that is stopped cannot see that its parent has gone."""
    os.register_at_fork(before=_note_thread, after_in_child=partial(_end_with_parent, os.getpid()))


_forking = threading.local()


def _note_thread() -> None:
    """Keep for the child whether the main thread forks it; in the child its only thread is the main one."""
    _forking.main = threading.current_thread() is threading.main_thread()


def _end_with_parent(arm: int) -> None:
    """Have a worker end with its arm.

    The kernel signals it when the thread that forked it ends, and only the main one ends with the arm. What a
    worker forks may be a daemon, which is to work on when the worker ends.
    """
    die_with_parent(signal.SIGKILL if _forking.main and os.getppid() == arm else signal.SIGCONT)


def adopt_orphans() -> None:
    """Have descendants whose parents end become children of this process: none of them is lost by that."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1)


def children_of(pid: int) -> list[int]:
    """Processes that a process has started or adopted; none where the kernel does not list them."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def descendants(pids: Iterable[int]) -> list[int]:
    """All that these processes, and what they started, have started."""
    found = [*pids]
    roots = len(found)
    for parent in found:
        found += children_of(parent)
    return found[roots:]


def kill_all(pids: Iterable[int]) -> None:
    """Kill processes, of which some may have ended."""
    _signal_all(pids, signal.SIGKILL)


def _signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_family() -> None:
    """Kill all that this process has started or adopted, and what that forks meanwhile.

    It gives up on what cannot be killed, such as a program of another user.
    """
    for _ in range(_TRIES):
        left = descendants([os.getpid()])
        if not left:
            return
        kill_all(left)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(_PAUSE_S)


_TRIES, _PAUSE_S = 1000, 0.002
"""How often, and at what distance, a process looks for more of its family before it ends."""


def detach(log_file: Path) -> None:
    """Make a forked process its own: a process group, an end when its parent ends, streams into its log.

    Raises
    ------
    SystemExit
        The log cannot be written: a folder was closed, or the disk is full.
    """
    os.setsid()
    die_with_parent()
    try:
        log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        print(f"{log_file}: {error.strerror}", file=sys.stderr)
        sys.exit(UNWRITTEN)
    for stream in (1, 2):
        os.dup2(log, stream)


def flush_streams() -> None:
    """Write what is left of both streams; what a full disk does not take is lost."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()


def by_itself(main: Callable[[list[str]], int]) -> NoReturn:
    """Run a process that no server has forked, and end it as if one had: with all that it has started.

    Threads that user code has left running do not hold it up.
    """
    die_with_parent()
    adopt_orphans()
    try:
        status = main(sys.argv[1:])
    finally:
        flush_streams()
        end_family()
    os._exit(status)
