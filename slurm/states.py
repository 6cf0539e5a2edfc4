"""What Slurm's words mean for us, and the one table of who is tried again after which end.

An unknown word means that the job is not finished.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase


class End(StrEnum):
    """How one submission of a job ended."""

    DONE = "done"
    PREEMPTED = "preempted"
    NODE_FAIL = "node failed"
    UNFIT = "node unfit"  # its node lacks what was asked for
    VANISHED = "vanished"  # Slurm says that it knows nothing of it, and it gives no sign of life
    STOPPED = "stopped"  # it was asked to end, and did so properly
    UNCLEAR = "unclear"  # a user may have cancelled it, and nothing is left that says so
    TIMEOUT = "timeout"
    OOM = "out of memory"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    FAILED = "failed"  # it ended by itself with a status that says why
    NO_RESULT = "no result"  # it ended and gave no reason
    REFUSED = "refused"  # it was never submitted


TERMINAL = {
    "COMPLETED": End.NO_RESULT,  # unless our own record says more
    "FAILED": End.NO_RESULT,
    "PREEMPTED": End.PREEMPTED,
    "NODE_FAIL": End.NODE_FAIL,
    "BOOT_FAIL": End.NODE_FAIL,
    "LAUNCH_FAILED": End.NODE_FAIL,
    "RECONFIG_FAIL": End.NODE_FAIL,
    "TIMEOUT": End.TIMEOUT,
    "OUT_OF_MEMORY": End.OOM,
    "DEADLINE": End.DEADLINE,
    "CANCELLED": End.CANCELLED,
}

ELSEWHERE = "REVOKED"
"""State of a job of a federation that another of its clusters has started: what it does is known there."""

_LIVE = """
    PENDING CONFIGURING RUNNING COMPLETING SUSPENDED STOPPED SIGNALING STAGE_OUT RESIZING
    REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT POWER_UP_NODE"""

LIVE = frozenset((*_LIVE.split(), ELSEWHERE))

_RELEASE = "release it with `scontrol release`, or cancel it"
_SMALLER = "ask for less, or choose another partition or qos"
_PERMISSION = "choose another cluster.account, cluster.qos or cluster.partition"
_LARGER = "this qos takes larger jobs only: ask for more, or choose another cluster.qos"
_BUDGET = "this budget is spent: ask the site for more, or choose another cluster.account or cluster.qos"

_STOPPED: tuple[tuple[str, str, str], ...] = (
    ("REQUEUE_HOLD", "*", _RELEASE),
    ("RESV_DEL_HOLD", "*", "its reservation is gone: choose another cluster.reservation"),
    ("SPECIAL_EXIT", "*", _RELEASE),
    ("PENDING", "JobHeld*", _RELEASE),
    ("PENDING", "*requeued*held*", _RELEASE),  # Slurm holds what a node could not launch
    ("PENDING", "JobHoldMaxRequeue", _RELEASE),
    ("PENDING", "DependencyNeverSatisfied", "what it depends on failed: cancel it"),
    ("PENDING", "PartitionDown", "its partition is down: wait for the site, or choose another"),
    ("PENDING", "PartitionInactive", "its partition takes no jobs: choose another cluster.partition"),
    ("PENDING", "PartitionTimeLimit", "lower cluster.time_min, or choose another partition"),
    ("PENDING", "*MaxWallDuration*", "lower cluster.time_min, or choose another qos"),
    ("PENDING", "PartitionNodeLimit", _SMALLER),
    ("PENDING", "*PerJob*", _SMALLER),  # the limits per user, account or group are waits
    ("PENDING", "BadConstraints", "no node is like that: change cluster.constraint or the resources"),
    ("PENDING", "ReservationDeleted", "its reservation is gone: choose another cluster.reservation"),
    ("PENDING", "QOSMin*", _LARGER),
    ("PENDING", "*Grp*[!n]Minutes*", _BUDGET),  # RunMinutes are of what runs now, and come back
    ("PENDING", "*GrpWall*", _BUDGET),
    ("PENDING", "AccountNotAllowed", _PERMISSION),
    ("PENDING", "QOSNotAllowed", _PERMISSION),
    ("PENDING", "Invalid*", _PERMISSION),
    ("PENDING", "*can't use this partition*", _PERMISSION),
    ("PENDING", "*not permitted*", _PERMISSION),
)
"""State and reason of jobs that start only when the user does something, and what; all others wait."""


def end_of(state: str) -> End | None:
    """How a job in this state ended, by Slurm's word alone; None while it has not."""
    return TERMINAL.get(state)


def remedy(state: str, reason: str) -> str | None:
    """What the user must do before a job can start; None where waiting is enough."""
    return next(
        (what for known, like, what in _STOPPED if state == known and fnmatchcase(reason, like)), None
    )


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
