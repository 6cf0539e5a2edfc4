"""From what Slurm says and what a job has written itself to its state. Pure: no clock, no files."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from perfsweep.slurm.client import Sighting
from perfsweep.slurm.element import STUCK, TRY_AGAIN, UNFIT
from perfsweep.slurm.states import End, end_of, remedy

SETUP_SIGN = "perfsweep: cluster.setup"
"""How the batch script begins the sentence about a set-up line that failed."""

_OOM_SIGNS = (
    "oom-kill",
    "oom_kill",
    "exceeded memory limit",
    "Exceeded job memory limit",
    "out-of-memory handler",
)

_BY_REQUEST = (TRY_AGAIN, STUCK, 128 + signal.SIGTERM)
_KILLED = 128 + signal.SIGKILL


@dataclass(frozen=True)
class ExitRecord:
    """What one start of a job wrote when it ended; `said`: what it lacked, where that ended it."""

    status: int
    signals: tuple[str, ...] = ()
    said: str = ""

    @property
    def final(self) -> bool:
        """Whether the job ended by itself: neither a user nor a signal ended it."""
        return self.status < 128 and self.status not in _BY_REQUEST


@dataclass(frozen=True)
class ElementRecords:
    """A job's own words: how its starts ended, by number of restarts, and its last sign of life.

    `output` is the end of what Slurm's batch script printed, None while there is no such file.
    """

    exits: Mapping[int, ExitRecord]
    starts: int = 0
    alive_at: float | None = None  # by the clock of who judges
    output: str | None = None

    @property
    def done(self) -> bool:
        """Whether one start did all there was to do."""
        return any(record.status == 0 for record in self.exits.values())

    @property
    def last(self) -> ExitRecord | None:
        """What the latest start wrote, None if it ended and gave no reason."""
        return self.exits.get(max(self.starts - 1, 0))

    @property
    def begun(self) -> bool:
        """Whether the latest start has not said yet how it ended; an earlier start may have been killed."""
        return self.starts > 0 and self.last is None

    @property
    def oom(self) -> bool:
        """Whether Slurm's output mentions memory."""
        return any(sign in (self.output or "") for sign in _OOM_SIGNS)

    @property
    def last_line(self) -> str:
        """The last line of Slurm's output, or the one that names a set-up line, in words."""
        lines = [line.strip() for line in (self.output or "").splitlines() if line.strip()]
        setup = [line for line in lines if line.startswith(SETUP_SIGN)]
        return [*lines, *setup][-1] if lines else ""


class Missing(Enum):
    """Why Slurm's answer holds no state of an element."""

    UNPROVEN = "Slurm says nothing about it"  # it did not answer, or not all sources did
    ELSEWHERE = "on another cluster"
    FORGOTTEN = "unknown to Slurm"  # the controller itself says so
    TAKEN_OUT = "unknown to Slurm, which knows others of its array"
    REISSUED = "unknown to Slurm, which gave its number to another job"  # it lost what it knew


@dataclass(frozen=True)
class Patience:
    """How long the absence of something is no proof, in seconds."""

    file_s: float  # a file of a node may be seen late
    heartbeat_s: float  # signs of life may be this far apart
    polls: int = 2  # Slurm may not know a job yet, or not any more


@dataclass(frozen=True)
class Silence:
    """Since when, in seconds, and for how many answers an element has been over or missing."""

    seconds: float = 0.0
    polls: int = 0


@dataclass(frozen=True)
class Standing:
    """The state of an element: `end` is None until it ends. `held`: nothing will happen by itself."""

    end: End | None = None
    note: str = ""
    running: bool = False
    held: bool = False
    reason: str = ""  # Slurm's, why it does not run
    # When Slurm expects to start it, where it knows; it changes its mind, which is no change of standing.
    start: str = field(default="", compare=False)


def judge(
    seen: Sighting | Missing,
    own: ElementRecords,
    silence: Silence,
    now: float,
    patience: Patience,
    cancelled: bool = False,
) -> Standing:
    """The state of an element after an answer of Slurm.

    Parameters
    ----------
    seen : the element in that answer, or why it is not there
    own : the job's own records
    cancelled : whether a user wants it to end
    """
    if own.done:
        return Standing(End.DONE)
    standing = (
        _missing(seen, own, silence, now, patience, cancelled)
        if isinstance(seen, Missing)
        else _known(seen, own, silence, patience)
    )
    if cancelled and standing.end is not None:
        return Standing(End.CANCELLED, "cancelled")
    return standing


def _known(seen: Sighting, own: ElementRecords, silence: Silence, patience: Patience) -> Standing:
    """Slurm knows it."""
    end = end_of(seen.state)
    reason = "" if seen.reason in ("", "None") else seen.reason
    if end is None:
        todo = remedy(seen.state, reason)
        note = ": ".join(filter(None, [seen.state.lower(), reason, todo]))
        waiting = seen.state in ("PENDING", "CONFIGURING", "REQUEUED")
        start = seen.start if waiting else ""
        return Standing(None, note, running=not waiting, held=todo is not None, reason=reason, start=start)
    if end is not End.NO_RESULT:
        words = " ".join(filter(None, [seen.state, reason]))
        return Standing(end, f"{end.value} by Slurm's word ({words})")
    return _by_its_records(own, silence, " ".join(filter(None, [seen.state, reason])), patience)


def _missing(
    why: Missing, own: ElementRecords, silence: Silence, now: float, patience: Patience, cancelled: bool
) -> Standing:
    """Slurm's answer does not hold it."""
    fresh = own.alive_at is not None and now - own.alive_at < 2 * patience.heartbeat_s + patience.file_s
    early = silence.polls < patience.polls or silence.seconds < patience.file_s
    if own.last is not None and own.last.final and not early:
        return _by_its_records(own, silence, "", patience)
    if why in (Missing.UNPROVEN, Missing.ELSEWHERE) or early:
        held = why is Missing.ELSEWHERE and not fresh
        todo = ": follow it from a machine of that cluster" if held else ""
        running = own.begun if why is Missing.UNPROVEN else fresh
        return Standing(None, why.value + todo, running=running, held=held)
    if own.last is not None or cancelled:
        standing = _by_its_records(own, silence, "", patience)
        unclear = standing.end is End.STOPPED and why is not Missing.REISSUED
        return Standing(End.UNCLEAR, f"{standing.note}, {_UNCLEAR}") if unclear else standing
    if fresh:
        return Standing(None, "unknown to Slurm, and alive", running=True)
    if own.output is not None:
        return _by_its_records(own, silence, "", patience)
    if why is Missing.TAKEN_OUT and not own.starts:
        return Standing(End.CANCELLED, "taken out of the queue before it started")
    if why is Missing.FORGOTTEN and not own.starts:
        return Standing(End.UNCLEAR, f"it never started, {_UNCLEAR}")
    return Standing(End.VANISHED, "unknown to Slurm, and without a sign of life")


_UNCLEAR = (
    "and Slurm has forgotten it: it was cancelled or lost. It is not submitted again unasked:"
    " the same sweep command does that"
)


def _by_its_records(own: ElementRecords, silence: Silence, state: str, patience: Patience) -> Standing:
    """Slurm says only that it ended."""
    last = own.last
    if last is None:
        if silence.seconds < patience.file_s:
            return Standing(None, f"{state.lower()}, waiting for its own record")
        if own.oom:
            return Standing(End.OOM, "Slurm ended it because memory ran out")
        if own.last_line.startswith(SETUP_SIGN):
            return Standing(End.FAILED, own.last_line.removeprefix("perfsweep: "))
        return Standing(End.NO_RESULT, _unexplained("it ended and gave no reason", own, state))
    if "SIGUSR2" in last.signals and last.status in (TRY_AGAIN, STUCK):
        return Standing(End.TIMEOUT, "stopped before its time limit")
    if last.status in _BY_REQUEST:
        return Standing(End.STOPPED, f"stopped by {last.signals[-1] if last.signals else 'SIGTERM'}")
    if last.status == _KILLED and own.oom:
        return Standing(End.OOM, "memory ran out")
    if last.status == _KILLED:
        return Standing(End.NO_RESULT, _unexplained("its process was killed", own, state))
    if last.status > 128:
        return Standing(End.NO_RESULT, f"its process was ended by signal {last.status - 128}")
    end = End.UNFIT if last.status == UNFIT else End.FAILED
    return Standing(end, last.said or f"it ended with status {last.status}")


def _unexplained(what: str, own: ElementRecords, state: str) -> str:
    """Say what little is known: Slurm's state and reason, and the end of its output."""
    said = f"; Slurm's output ends: {own.last_line}" if own.last_line else ""
    return f"{what}{f' ({state})' if state else ''}{said}"
