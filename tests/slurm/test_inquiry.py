"""What follows from Slurm's answers about jobs: squeue, then accounts, then the controller's word."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.slurm.client import Forbidden, NoAccounting, Refused, Sighting, SlurmClient, Unreachable
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.job_outcome import Missing
from perfsweep.slurm.journal import Journal, Submission
from perfsweep.slurm.observation import ARRAYS_A_TIME, MARK, SETTLE_S, Inquiry

LATER = 100.0


class Slurm(SlurmClient):
    """A Slurm that says what it is told to say, and notes what it was asked."""

    def __init__(self, name: str = "dev") -> None:
        super().__init__()
        self.name = name
        self.queued: list[Sighting] = []
        self.accounts: list[Sighting] | ClusterError = []
        self.known: dict[str | None, list[Sighting]] = {}
        self.error: ClusterError | None = None
        self.asked: list[str | None] = []

    def cluster(self) -> str | None:
        return self.name

    def queue(self) -> list[Sighting]:
        return self.queued

    def accounted(self, arrays) -> list[Sighting]:
        if isinstance(self.accounts, ClusterError):
            raise self.accounts
        return [row for row in self.accounts if row.array in arrays]

    def shown(self, array: str | None = None) -> list[Sighting]:
        self.asked.append(array)
        if self.error:
            raise self.error
        return self.known.get(array, [])


class Case:
    """A sweep of one array of two jobs, its number 62, long ago."""

    def __init__(self, folder: Path) -> None:
        self.slurm, self.journal, self.said = Slurm(), Journal(folder / "journal"), []
        self.now = 0.0
        self.inquiry = Inquiry(self.slurm, self.journal, self.said.append, lambda: self.now)
        self.first = self.submitted("62")

    def submitted(self, array: str | None, names=("p000", "p001"), cluster: str | None = None) -> Submission:
        submission = self.journal.submitting(names, None, cluster)
        if array is not None:
            self.journal.submitted(submission.token, array)
        self.now = submission.time + LATER
        return submission

    def row(self, index: int | None, state: str, **changes: str) -> Sighting:
        own = {"array": "62", "job_id": "65", "comment": MARK + self.first.token}
        return Sighting(index=index, state=state, **own | changes)

    def answer(self) -> list[Sighting | Missing]:
        answer = self.inquiry.ask()
        return [answer[self.first.token, index] for index in self.first.open]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_a_row_belongs_to_the_job_whose_token_it_bears_and_not_to_its_number(case: Case) -> None:
    ours = case.row(0, "RUNNING")
    named = case.row(1, "PENDING", comment="(null)", name=f"demo.{case.first.token}")
    case.slurm.queued = [ours, named, case.row(1, "COMPLETED", comment="perfsweep:other", name="demo.other")]
    assert case.answer() == [ours, named]
    assert case.slurm.asked == [], "nothing is missing"


def test_a_row_that_names_no_element_stands_for_those_that_no_other_row_names(case: Case) -> None:
    rest, one = case.row(None, "PENDING"), case.row(1, "RUNNING")
    for queued in ([rest, one], [one, rest]):
        case.slurm.queued = queued
        assert case.answer() == [rest, one]


def test_what_the_queue_has_forgotten_is_looked_for_in_the_accounts(case: Case) -> None:
    running, ended = case.row(0, "RUNNING"), case.row(1, "FAILED")
    case.slurm.queued, case.slurm.accounts = [running], [case.row(0, "FAILED"), ended]
    assert case.answer() == [running, ended], "the queue's own word is newer"
    assert case.slurm.asked == []


def test_accounts_that_call_it_alive_are_late_and_the_controller_decides(case: Case) -> None:
    case.slurm.accounts = [case.row(0, "RUNNING"), case.row(1, "FAILED")]
    assert case.answer() == [Missing.FORGOTTEN, case.row(1, "FAILED")]
    assert case.slurm.asked == ["62"]


@pytest.mark.parametrize(
    ("shown", "absent"),
    [
        ([], Missing.FORGOTTEN),
        ([{"index": 1, "state": "RUNNING"}], Missing.TAKEN_OUT),
        ([{"index": 0, "state": "RUNNING", "comment": "another's"}], Missing.REISSUED),
    ],
    ids=["nothing", "others of its array", "a job of somebody else"],
)
def test_the_controllers_word_about_an_array_is_proof(case: Case, shown: list[dict], absent: Missing) -> None:
    case.slurm.known["62"] = [case.row(**values) for values in shown]
    assert case.answer()[0] is absent


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Unreachable("Socket timed out"), []),
        (Refused("Access denied\nmore"), ["scontrol does not say whether job 62 exists (Access denied)"]),
    ],
)
def test_a_controller_that_does_not_answer_proves_nothing(case: Case, error: ClusterError, said) -> None:
    case.slurm.error = error
    for _ in range(2):
        assert case.answer() == [Missing.UNPROVEN, Missing.UNPROVEN]
    assert case.said == said


def test_accounts_that_do_not_answer_prove_nothing_and_that_is_said_once(case: Case) -> None:
    case.slurm.accounts = Refused("")
    for _ in range(2):
        assert case.answer() == [Missing.UNPROVEN, Missing.UNPROVEN]
    assert case.said == [
        "accounting does not answer (no reason given): how packs ended that the queue has forgotten is not"
        " known until it does"
    ]
    assert case.slurm.asked == []


def test_where_no_accounts_are_kept_the_controller_is_asked_at_once(case: Case) -> None:
    case.slurm.accounts = NoAccounting("disabled")
    assert case.answer() == [Missing.FORGOTTEN, Missing.FORGOTTEN]
    assert case.said == []


@pytest.mark.parametrize(("seconds", "asked"), [(SETTLE_S - 1, []), (SETTLE_S + 1, ["62"])])
def test_nothing_follows_from_silence_so_soon_after_a_submission(case: Case, seconds: float, asked) -> None:
    case.now = case.first.time + seconds
    case.answer()
    assert case.slurm.asked == asked


def test_many_missing_arrays_are_asked_for_in_turns(case: Case) -> None:
    for number in range(63, 69):
        case.submitted(str(number), [f"p{number}"])
    looks = []
    for _ in range(2):
        case.slurm.asked.clear()
        case.inquiry.ask()
        looks.append([*case.slurm.asked])
    assert looks == [["62", "63", "64", "65"], ["66", "67", "68", "62"]]
    assert len(looks[0]) == ARRAYS_A_TIME


def test_a_word_that_nobody_knows_is_said_once_and_known_ones_are_not(case: Case) -> None:
    case.slurm.queued = [case.row(0, "WARP"), case.row(1, "RUNNING")]
    for _ in range(2):
        case.answer()
    assert case.said == ["Slurm calls a job WARP, which is new here: it counts as unfinished"]


def test_the_controller_carries_a_submission_if_one_of_its_jobs_bears_the_token(case: Case) -> None:
    case.slurm.known[None] = [case.row(0, "RUNNING", comment="perfsweep:other")]
    assert not case.inquiry.carries(case.first.token)
    case.slurm.known[None] = [case.row(0, "COMPLETED")]
    assert case.inquiry.carries(case.first.token)
    case.slurm.error, case.slurm.queued = Forbidden("not for you"), [case.row(1, "PENDING")]
    assert case.inquiry.carries(case.first.token), "the queue says so where the controller shows nothing"
    case.slurm.queued = []
    assert not case.inquiry.carries(case.first.token)
