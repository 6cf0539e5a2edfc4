"""A process that works for this one: started, asked in lines of JSON with a deadline, ended with its group.

Publishers, the servers of other nodes, versions of the code and stages of the GPU check are such workers.
Trials and the launcher of commands are not: what is timed says nothing while it works, and they take
descriptors, which lines cannot carry; see `perfsweep.pipelines.execution.spawn`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import connection
from typing import IO, Any, TextIO

SAY_S = 30.0
"""Time for a worker to take an order."""

LAST_BYTES = 4096
"""Of a log, from which its last line is taken."""


class Messages:
    """Lines of JSON objects that arrive at a file descriptor; `ended` once the other side has closed it.

    Other lines, as banners of srun, are passed over.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.ended = False
        self._rest = b""
        os.set_blocking(descriptor, False)

    def arrived(self) -> list[dict[str, Any]]:
        """Take what has arrived; waits for nothing."""
        while not self.ended:
            try:
                part = os.read(self.descriptor, 1 << 16)
            except BlockingIOError:
                break
            self._rest += part
            self.ended = not part
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines if line.startswith(b"{")]


class Worker:
    """Starts a process, in a group of its own.

    Parameters
    ----------
    env : its environment; this process's by default
    log : where its standard error goes; to that of this process by default

    Raises
    ------
    OSError
        The command cannot be started.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, log: IO[bytes] | None = None
    ) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=env, stdin=pipe, stdout=pipe, stderr=log, start_new_session=True
        )
        assert self.process.stdin and self.process.stdout
        self._orders, self._answers = self.process.stdin, self.process.stdout
        os.set_blocking(self._orders.fileno(), False)
        self.messages = Messages(self._answers.fileno())
        self._handle = os.pidfd_open(self.process.pid)
        self._arrived: list[dict[str, Any]] = []
        self._status: int | None = None

    @property
    def gone(self) -> bool:
        """Whether it has ended, or listens no more."""
        ended = self._status is not None or connection.wait([self._handle], 0)
        return bool(ended) or self.messages.ended

    def say(self, order: object, seconds: float = SAY_S) -> None:
        """Send an order; that it was not taken, or that the process has gone, shows as no answer."""
        if self._status is not None:
            return
        left, deadline = json.dumps(order, default=str).encode() + b"\n", time.monotonic() + seconds
        room = select.poll()  # a process that hangs reads nothing, and a pipe holds 64 KiB
        room.register(self._orders, select.POLLOUT)
        while left and room.poll(1000 * max(0.0, deadline - time.monotonic())):
            try:
                left = left[os.write(self._orders.fileno(), left) :]
            except OSError:
                self.messages.ended = True
                return

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """Wait for the next answer; None where it does not come in time, or the process has ended."""
        deadline = time.monotonic() + seconds
        while not self._arrived:
            left = max(0.0, deadline - time.monotonic())
            if self.messages.ended or not connection.wait([self.messages.descriptor], left):
                return None
            self._arrived = self.messages.arrived()
        return self._arrived.pop(0)

    def ask(self, order: object, seconds: float) -> dict[str, Any] | None:
        """Send an order and wait for its answer, as `answer` does."""
        self.say(order, seconds)
        return self.answer(seconds)

    def end(self, seconds: float = 0.0) -> int:
        """Let it end by itself, ask it to, each for so many seconds, and kill what is left of its group.

        Returns its exit status, negative for a signal.
        """
        if self._status is None:
            with suppress(OSError):  # it has gone, and does not take what was still to be said
                self._orders.close()
            for number in (0, signal.SIGTERM) if seconds else ():
                self._signal(number)
                if connection.wait([self._handle], seconds):
                    break
            self._signal(signal.SIGKILL)  # before it is reaped: until then the group's number is its own
            self._status = self.process.wait()
            os.close(self._handle)
            self._answers.close()
            self.messages.ended = True
        return self._status

    def kill(self) -> None:
        """Kill it and its group; another thread may be waiting for its answer."""
        if self._status is None:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def answers() -> TextIO:
    """In a worker: the stream that its answers go to, one line each. What anybody prints goes to the log."""
    stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return stream


def last_line(log: IO[bytes]) -> str:
    """The last line of a worker's log; empty where it has said nothing."""
    size = os.fstat(log.fileno()).st_size
    end = os.pread(log.fileno(), LAST_BYTES, max(0, size - LAST_BYTES))
    return " ".join(end.decode(errors="replace").strip().splitlines()[-1:])
