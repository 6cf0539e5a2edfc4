"""Turns: how the timed region of an arm is cut, so that arms share what troubles their machine.

All arms of a generation are set up and warm, and exactly one of them works at a time, for some ten
milliseconds. What slows a core for longer than that slows all of them alike. Shorter turns gain nothing and
time cold caches.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import Any

from perfsweep.pipelines.trial.machine.environment import HostUsage
from perfsweep.pipelines.trial.parent import Ready, Reply, Turn


class Uncut:
    """A region that no other arm shares: one turn."""

    def next(self) -> Turn:
        """All iterations that are left."""
        return Turn(steps=2**62)


class Turns:
    """Turns that the pack gives through a pipe.

    Attributes
    ----------
    took_s : seconds of the trial, with its part of what its round did for all arms; None until it has ended
    """

    def __init__(self, pipe: Connection) -> None:
        self.took_s: float | None = None
        self._pipe = pipe
        self._in_turn = False
        self._own_s = 0.0

    def ready(self, ready: Ready) -> None:
        """Say that the arm is warm."""
        self._own_s = _own_s()
        self.reply(Reply(ready=ready))

    def next(self) -> Turn:
        """End the turn under way, if there is one, and wait for the next.

        Raises
        ------
        SystemExit
            The pack is gone, or needs this process no more.
        """
        if self._in_turn:
            self.reply(Reply())
        self._in_turn = True
        return self._receive()

    def over(self) -> tuple[HostUsage, HostUsage]:
        """Say that the region is whole, and wait until those of all arms are: the host before and after."""
        self.reply(Reply(own_s=_own_s() - self._own_s))
        host, self.took_s = self._receive()
        return host

    def reply(self, reply: Reply) -> None:
        """Tell the pack something.

        Raises
        ------
        SystemExit
            The pack is gone: there is no one left to tell.
        """
        try:
            self._pipe.send(reply)
        except BrokenPipeError as error:
            raise SystemExit(1) from error

    def _receive(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError as error:
            raise SystemExit(1) from error


Cut = Turns | Uncut
"""Says how a region is cut."""


def _own_s() -> float:
    return sum(os.times()[:4])


class Wanted:
    """Iterations of a region that are not timed yet: every place of the cadence equally often.

    The first iterations of a turn are not timed, whichever places they have. Work that comes once in a
    cadence, such as an evaluation, would be missed or counted twice where places did not count.

    Parameters
    ----------
    iterations : whole cadences
    done : iterations since set-up, from which the place of the next one follows
    cold : places that warm-up has not come to, and that are not timed the first time
    """

    def __init__(self, cadence: int, iterations: int, done: int, cold: Iterable[int] = ()) -> None:
        self._each = [iterations // cadence] * cadence
        self._ahead = iterations
        self._cold = {place for place in cold if place >= done}
        self._at = done % cadence
        self.left = iterations
        self.places: list[int] = []

    def pass_over(self, steps: int) -> None:
        """Iterations that are done and not timed."""
        self._ahead -= steps
        for _ in range(min(steps, len(self._each)) if self._cold else 0):
            self._cold.discard(self._at)
            self._at = (self._at + 1) % len(self._each)
            steps -= 1
        self._at = (self._at + steps) % len(self._each)

    def skip(self) -> int:
        """Pass over arms that were timed often enough or are cold, and count them."""
        skipped = 0
        while self.left and (self._at in self._cold or not self._each[self._at]):
            self.pass_over(1)
            skipped += 1
        return skipped

    def take(self, most: int) -> int:
        """Count the next ones, up to `most`, as timed; how many they are.

        Once all have come as often as they are to be timed, a single one that is missing is taken too: as the
        first of the next turn it would not be timed, and the whole cadence had to come again for it.
        """
        taken = 0
        while (
            (taken < most or self._is_last_missing()) and self._each[self._at] and self._at not in self._cold
        ):
            self._each[self._at] -= 1
            self.places.append(self._at)
            self.pass_over(1)
            taken += 1
        self.left -= taken
        return taken

    def _is_last_missing(self) -> bool:
        return self._ahead <= 0 and not self._each[(self._at + 1) % len(self._each)]
