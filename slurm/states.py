"""What Slurm's words mean for us. A word nobody has heard of means that the job is not finished."""

from __future__ import annotations

from enum import StrEnum


class End(StrEnum):
    """How one submission of a job ended."""

    DONE = "done"
    PREEMPTED = "preempted"
    NODE_FAIL = "node failed"
    VANISHED = "vanished"  # Slurm knows nothing of it, and it gives no sign of life
    STOPPED = "stopped"  # it was asked to end, and did so properly
    TIMEOUT = "timeout"
    OOM = "out of memory"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    FAILED = "failed"  # it ended by itself with a status that says why
    NO_RESULT = "no result"  # it ended without a word
    REFUSED = "refused"  # it was never submitted


TERMINAL = {
    "COMPLETED": End.NO_RESULT,  # unless our own record says more
    "FAILED": End.NO_RESULT,
    "PREEMPTED": End.PREEMPTED,
    "REVOKED": End.NODE_FAIL,
    "NODE_FAIL": End.NODE_FAIL,
    "BOOT_FAIL": End.NODE_FAIL,
    "LAUNCH_FAILED": End.NODE_FAIL,
    "RECONFIG_FAIL": End.NODE_FAIL,
    "TIMEOUT": End.TIMEOUT,
    "OUT_OF_MEMORY": End.OOM,
    "DEADLINE": End.DEADLINE,
    "CANCELLED": End.CANCELLED,
}

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
    )
)

_HELD_STATES = ("REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
_HELD_REASONS = (
    "DependencyNeverSatisfied",
    "JobHeld",
    "PartitionDown",
    "PartitionInactive",
    "ReqNodeNotAvail",
    "AssocGrp",
    "QOSMax",
)


def end_of(state: str) -> End | None:
    """How a job in this state ended, by Slurm's word alone; None while it has not."""
    return TERMINAL.get(state)


def needs_attention(state: str, reason: str) -> bool:
    """Whether a job will not start until somebody does something."""
    return state in _HELD_STATES or (state == "PENDING" and reason.startswith(_HELD_REASONS))
