"""How often a job is tried again, by how it ended."""

from __future__ import annotations

import pytest

from perfsweep.slurm.retry import RULES, Rule, kept_when_asked_again, remedied, used_up
from perfsweep.slurm.states import LIVE, TERMINAL, End, end_of, remedy


@pytest.mark.parametrize(
    ("end", "tries"),
    [
        (End.PREEMPTED, (0, 1, 3)),
        (End.NODE_FAIL, (0, 1, 3)),
        (End.VANISHED, (0, 1, 3)),
        (End.STOPPED, (0, 1, 3)),
        (End.NO_RESULT, (0, 1, 1)),
        (End.UNFIT, (0, 1, 1)),
        (End.TIMEOUT, (0, 10, 30)),
        (End.OOM, (0, 2, 6)),
    ],
)
def test_the_sites_number_of_retries_counts_by_the_kind_of_end(end: End, tries: tuple[int, ...]) -> None:
    assert tuple(RULES[end].tries(most) for most in (0, 1, 3)) == tries
    assert len(RULES) == 8


def test_a_rule_allows_each_try_once_unless_it_says_more() -> None:
    assert (Rule(2).tries(3), Rule(2, most=4).tries(3), Rule(2, most=9).tries(3)) == (6, 4, 6)


@pytest.mark.parametrize("end", list(End))
def test_a_person_can_remedy_limits_alone(end: End) -> None:
    assert remedied(end) == (end in (End.TIMEOUT, End.OOM))


@pytest.mark.parametrize(
    ("tries", "end"),
    [
        ({}, None),
        ({End.OOM: 6}, None),
        ({End.OOM: 7}, End.OOM),
        ({End.TIMEOUT: 30, End.OOM: 6}, None),
        ({End.TIMEOUT: 31}, End.TIMEOUT),
        ({End.PREEMPTED: 99}, None),
    ],
)
def test_a_limit_that_was_met_once_more_than_allowed_is_used_up(
    tries: dict[End, int], end: End | None
) -> None:
    assert used_up(tries, 3) is end


def test_what_a_person_has_not_changed_stays_counted() -> None:
    assert kept_when_asked_again(()) == {End.TIMEOUT, End.OOM}
    assert kept_when_asked_again([End.OOM]) == {End.TIMEOUT}
    assert kept_when_asked_again([End.PREEMPTED]) == {End.TIMEOUT, End.OOM}


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("COMPLETED", End.NO_RESULT),
        ("FAILED", End.NO_RESULT),
        ("PREEMPTED", End.PREEMPTED),
        *[(state, End.NODE_FAIL) for state in ("NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED")],
        ("RECONFIG_FAIL", End.NODE_FAIL),
        ("TIMEOUT", End.TIMEOUT),
        ("OUT_OF_MEMORY", End.OOM),
        ("DEADLINE", End.DEADLINE),
        ("CANCELLED", End.CANCELLED),
        ("A_WORD_OF_A_LATER_SLURM", None),
        *[(state, None) for state in sorted(LIVE)],
    ],
)
def test_a_state_of_slurm_is_an_end_or_none(state: str, end: End | None) -> None:
    assert end_of(state) is end
    assert not LIVE & set(TERMINAL)


@pytest.mark.parametrize(
    ("state", "reason", "todo"),
    [
        ("RESV_DEL_HOLD", "None", "choose another cluster.reservation"),
        ("SPECIAL_EXIT", "None", "release it"),
        ("PENDING", "PartitionDown", "wait for the site"),
        ("PENDING", "PartitionInactive", "choose another cluster.partition"),
        ("PENDING", "PartitionNodeLimit", "ask for less"),
        ("PENDING", "BadConstraints", "change cluster.constraint"),
        ("PENDING", "ReservationDeleted", "choose another cluster.reservation"),
        ("PENDING", "InvalidQOS", "cluster.qos"),
        ("PENDING", "InvalidAccount", "cluster.account"),
        ("PENDING", "User's group can't use this partition", "cluster.partition"),
        ("RUNNING", "PartitionDown", None),
    ],
)
def test_what_a_person_must_do_is_told(state: str, reason: str, todo: str | None) -> None:
    found = remedy(state, reason)
    assert found is None if todo is None else todo in (found or "")
