"""Signals that ask a pack to end: heard once, wherever they find it, and never lost."""

from __future__ import annotations

import signal
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)

_heard: list[str] = []


class Interrupted(BaseException):
    """A signal asked the pack to end; like KeyboardInterrupt it passes every handler of ordinary mistakes."""


def listen() -> None:
    """Raise Interrupted on the first of these signals, out of whatever the main thread does then."""
    _heard.clear()
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def stop_if_interrupted() -> None:
    """Raise once more what a finalizer, out of which nothing can be raised, has kept to itself."""
    if _heard:
        raise Interrupted(_heard[0])


def heard() -> str:
    """Name the signal that has asked the pack to end; empty where none has."""
    return _heard[0] if _heard else ""


def _interrupt(number: int, frame: FrameType | None) -> None:
    for again in SIGNALS:  # Slurm, srun and our own parent may all pass the same signal on
        signal.signal(again, signal.SIG_IGN)
    _heard.append(signal.Signals(number).name)
    raise Interrupted(_heard[0])
