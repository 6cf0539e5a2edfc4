"""What follows when a job ended: the one table of who is tried again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from slurm.states import End

FREE = frozenset({End.PREEMPTED, End.NODE_FAIL, End.VANISHED, End.STOPPED})
"""Not the job's fault: tried again up to the site's `max_retries`."""

IF_ADVANCED = frozenset({End.TIMEOUT, End.OOM})
"""Tried again while each try leaves more finished than it found, up to `ADVANCES` times `max_retries`."""

ADVANCES = 10
"""A long pack needs many tries under a short time limit; one that gains a trial a try must end too."""


class Action(StrEnum):
    """What is done with a job that ended."""

    NONE = "none"  # it is done
    RETRY = "retry"
    FINAL = "final"


@dataclass(frozen=True)
class Tries:
    """How often a job was tried again so far, by whose fault it was."""

    free: int = 0
    counted: int = 0
    advanced: int = 0

    def after(self, end: End) -> Tries:
        """The count after one more retry for this reason."""
        if end in FREE:
            return replace(self, free=self.free + 1)
        if end in IF_ADVANCED:
            return replace(self, advanced=self.advanced + 1)
        return replace(self, counted=self.counted + 1)


def decide(end: End, tries: Tries, advanced: bool, max_retries: int) -> Action:
    """The retry table.

    A job that ended by itself with a status is final: doing it again would end the same way. One that ended
    without a word gets one more try.
    """
    if end is End.DONE:
        return Action.NONE
    if end in FREE:
        return Action.RETRY if tries.free < max_retries else Action.FINAL
    if end in IF_ADVANCED:
        return Action.RETRY if advanced and tries.advanced < ADVANCES * max_retries else Action.FINAL
    if end is End.NO_RESULT:
        return Action.RETRY if tries.counted < min(1, max_retries) else Action.FINAL
    return Action.FINAL
