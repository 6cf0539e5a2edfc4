"""The waits of a process that stays: between its turns, and between the slices of one."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from pathlib import Path

from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.trial.machine.environment import HostUsage
from perfsweep.pipelines.trial.parent import Reply


class Turns:
    """The waits of a process between its turns, and between the slices of one.

    Parameters
    ----------
    began : when the process began, in seconds since the epoch
    """

    def __init__(self, pipe: Connection, began: float) -> None:
        self._pipe = pipe
        self._working_since, self._worked_s = began, 0.0
        self.waits: list[tuple[HostUsage, HostUsage]] = []

    def next(self) -> Path | None:
        """Wait for the next turn; None where there is none."""
        self.waits.clear()
        try:
            file = Path(self._pipe.recv())
        except EOFError:
            return None
        self._working_since = time.time()
        return file

    def reply(self, reply: Reply) -> None:
        """Say how a turn ended.

        Raises
        ------
        SystemExit
            The pack is gone: nobody is told anything any more, and there is nothing to be told.
        """
        self._rest()
        try:
            self._pipe.send(reply)
        except BrokenPipeError as error:
            raise SystemExit(1) from error

    def others(self) -> None:
        """Let others work in the middle of a turn, until they have.

        Raises
        ------
        SystemExit
            The pack is gone, or needs this process no more.
        """
        before = environment.host_usage()
        self.reply(Reply(waits=True))
        try:
            self._pipe.recv()
        except EOFError as error:
            raise SystemExit(1) from error
        self._working_since = time.time()
        self.waits.append((before, environment.host_usage()))

    def worked_s(self) -> float:
        """Seconds since this was asked last, or since the process began, without the waits."""
        now = time.time()
        worked_s, self._worked_s = self._worked_s + now - self._working_since, 0.0
        self._working_since = now
        return worked_s

    def _rest(self) -> None:
        self._worked_s += time.time() - self._working_since
