"""From Slurm's words and a job's own to a verdict: only our own word means done, silence proves nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsweep.checksums import FIELD, sealed, unsealed
from perfsweep.slurm.client import Sighting, parse_accounting, parse_queue
from perfsweep.slurm.job_outcome import ElementRecords, ExitRecord, Missing, Patience, Silence, judge
from perfsweep.slurm.journal import Journal, Verdict
from perfsweep.slurm.observation import RecordFiles
from perfsweep.slurm.states import (
    LIVE,
    RULES,
    TERMINAL,
    Action,
    End,
    decide,
    kept_when_asked_again,
    remedy,
    used_up,
)

PATIENCE = Patience(file_s=30, heartbeat_s=10)


def seen(state: str, reason: str = "None") -> Sighting:
    return Sighting("7", 0, "7", state, reason)


def own(*words: ExitRecord, alive_at: float | None = None, oom: bool = False) -> ElementRecords:
    output = "slurmstepd: error: Exceeded job memory limit" if oom else None
    return ElementRecords(dict(enumerate(words)), max(len(words), 1), alive_at, output)


NEVER_STARTED = ElementRecords({})
NO_MODULE = "perfsweep: cluster.setup line 1 ended with status 1: module load cuda\n"


QUEUE = """\
62|0|63|RUNNING|None|n1|perfsweep:abc|demo.abc
62|[54-55%4]|62|PENDING|JobArrayTaskLimit||perfsweep:abc|demo.abc
70|N/A|70|PENDING|Resources|||a name | with bars
71|0|71|CANCELLED by 1000|None|n1|(null)|x
72|0|72|RUNN"""


def test_rows_of_squeue_are_read_and_one_cut_off_says_nothing() -> None:
    rows = list(parse_queue(QUEUE))
    assert [(r.array, r.index, r.state) for r in rows] == [
        ("62", 0, "RUNNING"),
        ("62", 54, "PENDING"),
        ("62", 55, "PENDING"),
        ("70", None, "PENDING"),
        ("71", 0, "CANCELLED"),
    ]
    assert rows[3].name == "a name | with bars"
    assert list(parse_queue("")) == []


def test_rows_of_sacct_are_read_and_the_last_run_of_an_element_counts() -> None:
    text = "62_1|64|NODE_FAIL|0:0|n1||demo.abc\n62_1|64|COMPLETED|0:0|n2||demo.abc\n"
    text += "62_[4-5]|62|CANCELLED by 0|0:0|None||demo.abc\nJobID|"
    rows = {row.index: row.state for row in parse_accounting(text)}
    assert rows == {1: "COMPLETED", 4: "CANCELLED", 5: "CANCELLED"}


@pytest.mark.parametrize(
    ("sighting", "words", "silent_s", "end"),
    [
        (seen("RUNNING"), own(ExitRecord(0)), 0, End.DONE),  # our own word wins over Slurm's
        (seen("FAILED"), own(ExitRecord(0)), 0, End.DONE),
        (Missing.FORGOTTEN, own(ExitRecord(0)), 0, End.DONE),
        (seen("COMPLETED"), own(), 5, None),  # its file may be late
        (seen("COMPLETED"), own(), 31, End.NO_RESULT),
        (seen("FAILED"), own(ExitRecord(3)), 0, End.FAILED),
        (seen("FAILED"), own(ExitRecord(75, ("SIGUSR2",))), 0, End.TIMEOUT),
        (seen("FAILED"), own(ExitRecord(79, ("SIGUSR2",))), 0, End.TIMEOUT),
        (seen("FAILED"), own(ExitRecord(75, ("SIGTERM",))), 0, End.STOPPED),
        (seen("FAILED"), own(ExitRecord(143)), 0, End.STOPPED),
        (seen("FAILED"), own(ExitRecord(137)), 0, End.NO_RESULT),
        (seen("FAILED"), own(ExitRecord(137), oom=True), 0, End.OOM),
        (seen("FAILED"), own(oom=True), 31, End.OOM),
        (seen("PREEMPTED"), own(), 0, End.PREEMPTED),
        (seen("NODE_FAIL"), own(), 0, End.NODE_FAIL),
        (seen("TIMEOUT"), own(ExitRecord(143, ("SIGTERM",))), 0, End.TIMEOUT),
        (seen("OUT_OF_MEMORY"), own(), 0, End.OOM),
        (seen("CANCELLED"), own(ExitRecord(75, ("SIGTERM",))), 0, End.CANCELLED),
        (seen("DEADLINE"), own(), 0, End.DEADLINE),
        (
            seen("PENDING", "BeginTime"),
            own(ExitRecord(75, ("SIGTERM",))),
            0,
            None,
        ),  # requeued: an earlier start's word is history
        (seen("RUNNING"), ElementRecords({0: ExitRecord(75)}, starts=2), 0, None),
        (seen("WARP_DRIVE"), own(), 99, None),  # a word of a later Slurm
        (Missing.FORGOTTEN, own(alive_at=995), 99, None),  # unknown to Slurm, and alive
        (Missing.FORGOTTEN, own(alive_at=500), 99, End.VANISHED),
        (Missing.FORGOTTEN, own(), 99, End.VANISHED),
        (Missing.FORGOTTEN, own(), 5, None),
        (Missing.FORGOTTEN, NEVER_STARTED, 99, End.UNCLEAR),  # cancelled by hand, or lost: nothing tells
        (Missing.REISSUED, NEVER_STARTED, 99, End.VANISHED),  # the controller lost its memory
        (Missing.FORGOTTEN, own(ExitRecord(75, ("SIGTERM",))), 99, End.UNCLEAR),
        (Missing.REISSUED, own(ExitRecord(75, ("SIGTERM",))), 99, End.STOPPED),
        (Missing.FORGOTTEN, own(ExitRecord(75, ("SIGUSR2",))), 99, End.TIMEOUT),  # no scancel's signal
        (Missing.FORGOTTEN, own(ExitRecord(3)), 99, End.FAILED),
        (Missing.FORGOTTEN, ElementRecords({}, output="bash: python: not found"), 99, End.NO_RESULT),
        (Missing.TAKEN_OUT, NEVER_STARTED, 99, End.CANCELLED),
        (Missing.TAKEN_OUT, own(), 99, End.VANISHED),  # it had started
        (Missing.UNPROVEN, own(), 1e6, None),  # silence proves nothing, however long
        (Missing.UNPROVEN, own(ExitRecord(3)), 99, End.FAILED),  # but our own word does
        (Missing.UNPROVEN, own(ExitRecord(75, ("SIGTERM",))), 99, None),
        (Missing.ELSEWHERE, own(), 1e6, None),
        (Missing.ELSEWHERE, own(ExitRecord(0)), 0, End.DONE),
        (seen("FAILED", "NonZeroExitCode"), ElementRecords({}, output=NO_MODULE), 31, End.FAILED),
    ],
    ids=lambda value: value.state if isinstance(value, Sighting) else str(value)[:30],
)
def test_what_slurm_says_and_what_a_job_wrote_give_one_verdict(
    sighting: Sighting | Missing, words: ElementRecords, silent_s: float, end: End | None
) -> None:
    assert judge(sighting, words, Silence(silent_s, 3), 1000.0, PATIENCE).end is end


@pytest.mark.parametrize("sign", [Missing.FORGOTTEN, Missing.TAKEN_OUT, seen("FAILED"), seen("PREEMPTED")])
def test_what_a_person_cancelled_never_comes_back_whatever_slurm_calls_it(sign: Sighting | Missing) -> None:
    standing = judge(sign, own(), Silence(99, 3), 1000.0, PATIENCE, cancelled=True)
    assert (standing.end, standing.note) == (End.CANCELLED, "cancelled")


STATES = st.sampled_from([*sorted(LIVE), *sorted(TERMINAL), "NEW_WORD"])


@given(st.lists(st.one_of(st.none(), STATES), max_size=20), st.integers(1, 255))
def test_no_sequence_of_slurms_words_makes_a_job_done(states: list[str | None], status: int) -> None:
    for number, state in enumerate(states):
        words = own(ExitRecord(status)) if number % 2 else own()
        sign = seen(state) if state else Missing.FORGOTTEN
        assert judge(sign, words, Silence(1000.0, 9), 1e6, PATIENCE).end is not End.DONE


@given(STATES.filter(lambda state: state in LIVE), st.floats(0, 1e6), st.integers(0, 99))
def test_a_job_that_slurm_calls_alive_never_ends(state: str, silent_s: float, polls: int) -> None:
    assert judge(seen(state), own(ExitRecord(75)), Silence(silent_s, polls), 1e6, PATIENCE).end is None


@pytest.mark.parametrize(
    ("state", "reason", "todo"),
    [
        ("PENDING", "JobHeldUser", "scontrol release"),
        ("PENDING", "launch failed requeued held", "scontrol release"),
        ("PENDING", "PartitionTimeLimit", "lower cluster.time_min"),
        ("PENDING", "QOSMaxCpuPerJobLimit", "ask for less"),
        ("PENDING", "Job's account not permitted to use this partition (x allows y)", "cluster.account"),
        ("REQUEUE_HOLD", "None", "scontrol release"),
        *[("PENDING", reason, None) for reason in ("Resources", "Priority", "Licenses", "NewReason")],
        *[("PENDING", reason, None) for reason in ("QOSMaxJobsPerUserLimit", "QOSMaxCpuPerUserLimit")],
        *[("PENDING", reason, None) for reason in ("AssocGrpCpuLimit", "ReqNodeNotAvail", "QOSGrpCpuLimit")],
        ("RUNNING", "None", None),
    ],
)
def test_what_waits_for_a_person_is_told_from_what_waits_for_a_node(
    state: str, reason: str, todo: str | None
) -> None:
    found = remedy(state, reason)
    assert found is todo or (found and todo and todo in found)


@pytest.mark.parametrize(
    ("end", "tries", "advanced", "action"),
    [
        (End.DONE, {}, False, Action.NONE),
        (End.PREEMPTED, {}, False, Action.RETRY),
        (End.PREEMPTED, {End.PREEMPTED: 3}, True, Action.FINAL),
        (End.NODE_FAIL, {End.PREEMPTED: 3}, False, Action.RETRY),
        (End.TIMEOUT, {}, False, Action.FINAL),
        (End.TIMEOUT, {End.TIMEOUT: 30}, True, Action.FINAL),
        (End.OOM, {End.OOM: 5}, True, Action.RETRY),
        (End.OOM, {}, False, Action.FINAL),
        (End.NO_RESULT, {End.NO_RESULT: 1}, False, Action.FINAL),
        *[(end, {}, True, Action.FINAL) for end in (End.FAILED, End.CANCELLED, End.DEADLINE, End.REFUSED)],
    ],
)
def test_who_is_tried_again(end: End, tries: dict[End, int], advanced: bool, action: Action) -> None:
    assert decide(end, tries, advanced, 3) is action


@given(st.lists(st.sampled_from(sorted(End)), max_size=200), st.booleans())
def test_retries_end_however_jobs_end(ends: list[End], advanced: bool) -> None:
    tries: Counter[End] = Counter()
    for end in ends:
        if decide(end, tries, advanced, max_retries=3) is Action.RETRY:
            tries[end] += 1
    assert tries.total() <= (13 + 36 if advanced else 13)
    assert all(tries[end] <= rule.tries(3) for end, rule in RULES.items())


def test_tries_for_memory_and_time_survive_that_a_person_asks_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "submissions.jsonl")
    for end in (End.OOM, End.PREEMPTED):
        submission = journal.submitting(["p000"], None)
        journal.ended(submission, 0, Verdict(end, Action.RETRY, "why"))
    journal.forgive("p000", kept={End.OOM, End.TIMEOUT})
    assert Journal(tmp_path / "submissions.jsonl").tries["p000"] == {End.OOM: 1}
    journal.forgive("p000")
    assert not Journal(tmp_path / "submissions.jsonl").tries["p000"]


@pytest.mark.parametrize("advanced", [False, True])
def test_starting_the_same_command_again_gives_no_more_tries_until_a_limit_changes(
    tmp_path: Path, advanced: bool
) -> None:
    journal = Journal(tmp_path / "submissions.jsonl")
    for _ in range(50):  # each time as a new command
        journal = Journal(journal.file)
        journal.forgive("p000", kept_when_asked_again(()))
        if used_up(journal.tries["p000"], 3):
            break
        action = decide(End.OOM, journal.tries["p000"], advanced, 3)
        journal.ended(journal.submitting(["p000"], None), 0, Verdict(End.OOM, action, "why"))
    assert len(journal.submissions) == 1 + RULES[End.OOM].tries(3)
    journal.forgive("p000", kept_when_asked_again({End.OOM}))  # with more memory
    assert used_up(journal.tries["p000"], 3) is None


def test_two_commands_read_what_the_other_wrote(tmp_path: Path) -> None:
    follower = Journal(tmp_path / "submissions.jsonl")
    submission = follower.submitting(["p000", "p001"], None, "alpha")
    other = Journal(tmp_path / "submissions.jsonl")
    other.cancelling(other.submissions[submission.token], [1])
    follower.refresh()
    assert submission.cancelled == {1}
    assert other.submissions[submission.token].cluster == "alpha"


def test_a_journal_read_again_says_the_same(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "submissions.jsonl")
    first = journal.submitting(["p000", "p001"], "/etc/slurm.conf")
    journal.submitted(first.token, "12")
    journal.ended(first, 0, Verdict(End.PREEMPTED, Action.RETRY, "why"))
    journal.ended(first, 1, Verdict(End.NODE_FAIL, Action.RETRY, "why"), ["n2"])
    second = journal.submitting(["p000"], None)
    again = Journal(tmp_path / "submissions.jsonl")
    assert again.submissions == journal.submissions
    assert again.open_names() == {"p000"}
    assert again.tries["p000"] == {End.PREEMPTED: 1}
    assert again.bad_nodes == {"n2"}
    journal.ended(second, 0, Verdict(End.DONE, Action.NONE, ""))
    assert Journal(tmp_path / "submissions.jsonl").open_names() == set()


def test_lines_of_other_executors_and_half_lines_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "submissions.jsonl"
    file.write_text('{"time": 1, "pack": "p000", "executor": "local", "command": []}\n{"event": "subm')
    assert Journal(file).submissions == {}


def test_a_second_copys_end_takes_success_back_from_nobody(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "submissions.jsonl")
    first, second = journal.submitting(["p000"], None), journal.submitting(["p000"], None)
    journal.ended(first, 0, Verdict(End.DONE, Action.NONE, ""))
    journal.ended(second, 0, Verdict(End.CANCELLED, Action.FINAL, ""))
    assert journal.verdicts["p000"].end is End.DONE


def test_the_latest_start_speaks_for_a_job_unless_an_earlier_one_finished_it(tmp_path: Path) -> None:
    files, own = RecordFiles(tmp_path), tmp_path / "abc"
    own.mkdir()
    (own / "3.start-0.json").write_text("{}")
    (own / "3.end-0.json").write_text('{"status": 75, "signals": ["SIGTERM"]}')
    assert files.read("abc")[3].last == ExitRecord(75, ("SIGTERM",))
    (own / "3.start-1.json").write_text("{}")
    assert files.read("abc")[3].last is None
    (own / "3.end-1.json").write_text('{"status":')  # the disk was full, or it is half there
    assert files.read("abc")[3].last is None
    (own / "3.end-1.json").write_text('{"status": 0, "signals": []}')
    assert files.read("abc")[3].done
    assert files.read("abc")[3].exits == {0: ExitRecord(75, ("SIGTERM",)), 1: ExitRecord(0, ())}


DONE = Verdict(End.DONE, Action.NONE, "")
LOST = Verdict(End.PREEMPTED, Action.RETRY, "lost")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "sweep/submissions.jsonl")


def test_an_array_is_open_until_it_is_refused_or_each_element_has_ended(journal: Journal) -> None:
    first = journal.submitting(["p000", "p001"], None)
    assert (first.open, first.array) == ([0, 1], None)
    journal.ended(first, 0, DONE)
    assert (first.open, journal.open_names()) == ([1], {"p001"})
    journal.ended(first, 1, DONE)
    assert (first.open, journal.open_submissions()) == ([], [])
    second = journal.submitting(["p002"], None)
    journal.refused(second.token, "no")
    assert (second.open, second.refused, journal.open_submissions()) == ([], "no", [])


def test_a_job_that_is_submitted_again_has_no_verdict_any_more(journal: Journal) -> None:
    journal.ended(journal.submitting(["p000"], None), 0, LOST)
    assert journal.verdicts == {"p000": LOST}
    journal.submitting(["p000"], None)
    assert journal.verdicts == {}


@pytest.mark.parametrize(
    ("end", "action", "tries"),
    [(End.PREEMPTED, Action.RETRY, 1), (End.OOM, Action.FINAL, 1), (End.FAILED, Action.FINAL, 0)],
)
def test_tries_count_what_was_tried_again_and_what_a_person_can_remedy(
    journal: Journal, end: End, action: Action, tries: int
) -> None:
    journal.ended(journal.submitting(["p000"], None), 0, Verdict(end, action, ""))
    assert journal.tries["p000"][end] == tries


def test_an_object_whose_content_was_changed_is_told_by_its_checksum() -> None:
    whole = sealed({"b": 2, "a": 1})
    assert unsealed(whole) == {"b": 2, "a": 1}
    assert whole[FIELD] == sealed({"a": 1, "b": 2})[FIELD], "in whatever order"
    with pytest.raises(ValueError, match="it states no checksum"):
        unsealed({"a": 1})
    with pytest.raises(ValueError, match="does not have the checksum that it states"):
        unsealed({**whole, "a": 3})


def test_a_line_that_another_command_is_still_writing_is_read_once_it_is_whole(tmp_path: Path) -> None:
    other = Journal(tmp_path / "other")
    other.submitted(other.submitting(["p000"], None).token, "62")
    first, second = other.file.read_bytes().splitlines(keepends=True)
    journal = Journal(tmp_path / "journal")
    for piece, arrays in (
        (first[:30], []),
        (first[30:-1], []),
        (b"\n", [None]),
        (second[:-1], [None]),
        (second[-1:], ["62"]),
    ):
        with journal.file.open("ab") as file:
            file.write(piece)
        journal.refresh()
        assert [submission.array for submission in journal.submissions.values()] == arrays
