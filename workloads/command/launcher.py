"""Starts a program again and again, and says how each run ended and what its processes used.

Run by `perfsweep.workloads.command.program` as a script, in an interpreter that imports nothing else: the
kernel counts the memory of the process that starts a program as that program's own, and a process that
measures has hundreds of megabytes. Descendants that lose their parent become its children, so that none is
lost from the account, and none outlives a run, or the process that asked for it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_PEAK = 2
"""Place of the largest resident memory in a rusage; everything else in it adds up."""
NOTHING = (0.0,) * 16

_OF_THE_CLUSTER = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
"""Sent to every process of a job: the process that asked for the run decides what ends."""
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

START, STOP = b"1", b"0"


def together(one: Sequence[float], other: Sequence[float]) -> tuple[float, ...]:
    """Add two rusages; the largest resident memory is that of the larger process."""
    pairs = enumerate(zip(one, other, strict=True))
    return tuple(max(pair) if place == _PEAK else sum(pair) for place, pair in pairs)


def serve(asked: socket.socket, program: str, argv: list[str], env: dict[str, str]) -> None:
    """Run the program once for each request, which brings its output and errors, until requests end."""
    asked.sendall(START)
    while True:
        request, outputs, _, _ = socket.recv_fds(asked, 1, 2)
        if not request:
            return
        if request == START:
            asked.sendall(json.dumps(run(asked, outputs, program, argv, env)).encode() + b"\n")


def run(
    asked: socket.socket, outputs: list[int], program: str, argv: list[str], env: dict[str, str]
) -> dict[str, object]:
    """Run the program; its exit status (negative for a signal) and rusage, or why it could not be started."""
    try:
        pid = os.posix_spawn(
            program,
            argv,
            env,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(outputs, start=1)],
            setsid=True,
            setsigdef=[*_OF_THE_CLUSTER, *_IGNORED_BY_PYTHON],
        )
    except OSError as error:
        return {"error": error.strerror}
    finally:
        for fd in outputs:
            os.close(fd)
    ended = os.pidfd_open(pid)
    # Whatever is read here, a request to stop or an end of the asking process, ends the run.
    select.select([ended, asked], [], [])
    os.close(ended)
    status, usage = end(pid)
    return {"status": status, "usage": usage}


def end(pid: int) -> tuple[int, tuple[float, ...]]:
    """Kill what is left of a run and account for all of it; what ended by itself keeps its status."""
    status, usage = 0, NOTHING
    while True:
        for child in _children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            one, code, used = os.wait3(0)
        except ChildProcessError:
            return status, usage
        usage = together(usage, tuple(used))
        if one == pid:
            status = os.waitstatus_to_exitcode(code)


def _children() -> list[int]:
    """Those of this process; what they started becomes its own when they end."""
    own = os.getpid()
    return [int(child) for child in Path(f"/proc/{own}/task/{own}/children").read_text().split()]


if __name__ == "__main__":
    for _number in _OF_THE_CLUSTER:
        signal.signal(_number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
    # The trial may die while this process is stopped: it must run to see that.
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGCONT)
    _asked = json.loads(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(_asked["folder"])
    with socket.socket(fileno=int(sys.argv[1])) as _socket:
        serve(_socket, _asked["program"], _asked["argv"], _asked["env"])
