"""What Slurm's words mean for us. An unknown word means that the job is not finished."""

from __future__ import annotations

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

LIVE = frozenset(
    (
        *(
            "PENDING",
            "CONFIGURING",
            "RUNNING",
            "COMPLETING",
            "SUSPENDED",
            "STOPPED",
            "SIGNALING",
            "STAGE_OUT",
            "RESIZING",
        ),
        *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT", "POWER_UP_NODE"),
        ELSEWHERE,
    )
)

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
