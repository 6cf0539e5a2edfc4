"""From what Slurm says and what a job has written itself to how it stands. Pure: no clock, no files."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass

from slurm.client import Sighting
from slurm.element import STUCK, TRY_AGAIN
from slurm.states import End, end_of, needs_attention


@dataclass(frozen=True)
class ExitRecord:
    """What one start of a job wrote when it ended."""

    status: int
    signals: tuple[str, ...] = ()


@dataclass(frozen=True)
class ElementRecords:
    """A job's own words: how its starts ended, by number of restarts, and its last sign of life."""

    exits: Mapping[int, ExitRecord]
    starts: int = 0
    alive_at: float | None = None  # seconds since the epoch
    oom: bool = False  # Slurm's own output mentions memory

    @property
    def done(self) -> bool:
        """Whether one start did all there was to do."""
        return any(record.status == 0 for record in self.exits.values())

    @property
    def last(self) -> ExitRecord | None:
        """What the latest start wrote, None if it ended without a word."""
        return self.exits.get(max(self.starts - 1, 0))


@dataclass(frozen=True)
class Patience:
    """How long the absence of something is no proof, in seconds."""

    file_s: float  # a file of a node may be seen late
    heartbeat_s: float  # signs of life may be this far apart
    polls: int = 2  # Slurm may not know a job yet, or not any more


@dataclass(frozen=True)
class Standing:
    """How an element stands: `end` is None while it is not over. `held`: nothing will happen by itself."""

    end: End | None = None
    note: str = ""
    running: bool = False
    held: bool = False


def judge(
    seen: Sighting | None,
    own: ElementRecords,
    silent_s: float,
    silent_polls: int,
    now: float,
    patience: Patience,
) -> Standing:
    """How an element stands after an answer of Slurm.

    Parameters
    ----------
    seen : the element in that answer, None if it is not there
    own : the job's own records
    silent_s, silent_polls : since when, and for how many answers, Slurm has been saying that it is over or
        unknown
    """
    if own.done:
        return Standing(End.DONE)
    if seen is None:
        return _unknown(own, silent_s, silent_polls, now, patience)
    end = end_of(seen.state)
    if end is None:
        held = needs_attention(seen.state, seen.reason)
        note = (
            f"{seen.state.lower()}: {seen.reason}" if seen.reason not in ("", "None") else seen.state.lower()
        )
        return Standing(
            None, note, running=seen.state not in ("PENDING", "CONFIGURING", "REQUEUED"), held=held
        )
    if end is not End.NO_RESULT:
        return Standing(
            end, f"{end.value} by Slurm's word ({seen.state} {seen.reason})".replace(" None)", ")")
        )
    return _by_its_records(own, silent_s, seen.state, patience)


def _unknown(
    own: ElementRecords, silent_s: float, silent_polls: int, now: float, patience: Patience
) -> Standing:
    """Slurm does not know the job, or not any more."""
    if silent_polls < patience.polls or silent_s < patience.file_s:
        return Standing(None, "not in Slurm's answer")
    if own.last is not None:
        return _by_its_records(own, silent_s, "gone", patience)
    if own.alive_at is not None and now - own.alive_at < 2 * patience.heartbeat_s + patience.file_s:
        return Standing(None, "unknown to Slurm, and alive", running=True)
    return Standing(End.VANISHED, "unknown to Slurm, and without a sign of life")


def _by_its_records(own: ElementRecords, silent_s: float, state: str, patience: Patience) -> Standing:
    """Slurm says only that it ended."""
    last = own.last
    if last is None:
        if silent_s < patience.file_s:
            return Standing(None, f"{state.lower()}, waiting for its own record")
        if own.oom:
            return Standing(End.OOM, "Slurm ended it because memory ran out")
        return Standing(End.NO_RESULT, "it ended without a word")
    if "SIGUSR2" in last.signals and last.status in (TRY_AGAIN, STUCK):
        return Standing(End.TIMEOUT, "stopped before its time limit")
    if last.status in (TRY_AGAIN, STUCK, 128 + signal.SIGTERM):
        return Standing(End.STOPPED, f"stopped by {last.signals[-1] if last.signals else 'SIGTERM'}")
    if last.status == 137:
        return (
            Standing(End.OOM, "memory ran out")
            if own.oom
            else Standing(End.NO_RESULT, "its process was killed")
        )
    if last.status > 128:
        return Standing(End.NO_RESULT, f"its process was ended by signal {last.status - 128}")
    return Standing(End.FAILED, f"it ended with status {last.status}")
