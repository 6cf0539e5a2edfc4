"""What follows when a job ended: the one table of who is tried again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from perfsweep.slurm.states import End


class Action(StrEnum):
    """What is done with a job that ended."""

    NONE = "none"  # it is done
    RETRY = "retry"
    FINAL = "final"


@dataclass(frozen=True)
class Rule:
    """How often a job is tried again after one kind of end.

    Attributes
    ----------
    times : tries for each one that the site's `max_retries` allows
    most : further tries at most, whatever the site allows
    advancing : only while each try leaves more finished than it found
    remedy : what the user can change when the tries are used up; such tries stay counted when the same
        command is started again
    """

    times: int
    most: int | None = None
    advancing: bool = False
    remedy: str = ""

    def tries(self, max_retries: int) -> int:
        """Further tries that a site with this `max_retries` gives."""
        allowed = self.times * max_retries
        return allowed if self.most is None else min(self.most, allowed)


RULES: Mapping[End, Rule] = {
    # Not the job's fault.
    End.PREEMPTED: Rule(1),
    End.NODE_FAIL: Rule(1),
    End.VANISHED: Rule(1),
    End.STOPPED: Rule(1),
    # It may be the node's.
    End.NO_RESULT: Rule(1, most=1),
    End.UNFIT: Rule(1, most=1),
    # A long pack needs many tries under a short time limit; memory takes one arm out of the pack a try.
    End.TIMEOUT: Rule(
        10,
        advancing=True,
        remedy="raise cluster.time_min, or lower cluster.arms_per_pack so that a round fits into it",
    ),
    End.OOM: Rule(2, advancing=True, remedy="raise cluster.memory"),
}
"""Ends after which a job is tried again; after all others it would end the same way."""


def decide(end: End, tries: Mapping[End, int], advanced: bool, max_retries: int) -> Action:
    """Look up what follows; `tries` counts by the end that each answered."""
    if end is End.DONE:
        return Action.NONE
    rule = RULES.get(end, Rule(0))
    useful = advanced or not rule.advancing
    return Action.RETRY if useful and tries.get(end, 0) < rule.tries(max_retries) else Action.FINAL


def remedied(end: End) -> bool:
    """Whether the user can change what led to an end; it stays counted until they do."""
    return bool(RULES.get(end, Rule(0)).remedy)


def used_up(tries: Mapping[End, int], max_retries: int) -> End | None:
    """Find the end that a job met once more than it may, so that starting it again needs a change."""
    limited = filter(remedied, RULES)
    return next((end for end in limited if tries.get(end, 0) > RULES[end].tries(max_retries)), None)


def kept_when_asked_again(changed: Collection[End]) -> frozenset[End]:
    """Ends that stay counted when the user starts the same job again, unless its limits changed."""
    return frozenset(filter(remedied, RULES)) - frozenset(changed)
