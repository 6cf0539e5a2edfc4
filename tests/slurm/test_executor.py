"""Following a sweep's jobs: their states, what is said of them, what is asked of Slurm, and cancelling."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from stand_ins import Clock, calls, job, on_stand_ins, program

from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.executor import SlurmExecutor
from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.journal import Verdict
from perfsweep.slurm.site import SiteProfile
from perfsweep.slurm.states import Action, End

TAKES = "echo Submitted batch job 62"


class Followed:
    """Three jobs of one array, its number 62, and a squeue that says what it is told to say."""

    def __init__(self, folder: Path, programs: Path, **fields: object) -> None:
        self.programs = programs
        program(programs, "sbatch", TAKES)
        self.ex, self.clock = on_stand_ins(folder, **fields)
        self.said: list[str] = []
        self.ex._say = self.said.append
        self.ex.submit([job(f"p{n:03d}") for n in range(3)])
        (self.submission,) = self.ex.journal.submissions.values()
        self.folder = folder / "sweep"

    def queue(self, *rows: str) -> None:
        """Rows of squeue: state, reason and start of each element; an empty one is missing."""
        token, lines = self.submission.token, []
        for index, row in enumerate(rows):
            if row:
                state, reason, start = (*row.split("|"), "", "")[:3]
                own = f"n1|perfsweep:{token}|demo.{token}|{start or 'N/A'}"
                lines.append(f"62|{index}|{100 + index}|{state}|{reason or 'None'}|{own}")
        (self.programs / "rows").write_text("\n".join(lines) + "\n")
        program(self.programs, "squeue", f"cat {self.programs}/rows")

    def record(self, index: int, status: int) -> None:
        own = self.folder / "submissions" / self.submission.token
        own.mkdir(exist_ok=True)
        (own / f"{index}.start-0.json").write_text("{}")
        (own / f"{index}.end-0.json").write_text(f'{{"status": {status}, "signals": []}}')

    def poll(self) -> list[str]:
        self.ex._next_poll = 0.0
        return [state.value for state in self.ex.poll().values()]


@pytest.fixture
def followed(tmp_path: Path, stand_in: Path) -> Followed:
    return Followed(tmp_path, stand_in)


def test_a_look_tells_how_jobs_stand_and_acts_on_nothing(followed: Followed) -> None:
    followed.queue("PREEMPTED", "CANCELLED", "COMPLETED")
    followed.record(2, 0)
    submitted = calls(followed.programs, "sbatch")
    assert [state.value for state in followed.ex.look().values()] == ["failed", "cancelled", "ended"]
    assert followed.ex.notes()["p000"] == "preempted by Slurm's word (PREEMPTED)"
    assert followed.ex.journal.open_names() == {"p000", "p001", "p002"}
    assert (calls(followed.programs, "sbatch"), followed.said) == (submitted, [])


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        (
            ("RUNNING|Prolog", "PENDING|Priority", "PENDING|Licenses"),
            "2 pending (Priority, Licenses), 1 running",
        ),
        (("PENDING|Priority", "PENDING|Resources", "PENDING|Resources"), "3 pending (Resources, Priority)"),
        (("PENDING", "RUNNING", "COMPLETED"), "2 pending, 1 running"),
    ],
)
def test_how_many_run_and_wait_and_what_for(followed: Followed, rows: tuple[str, ...], counts: str) -> None:
    followed.queue(*rows)
    followed.poll()
    assert followed.ex.counts() == counts


def test_a_job_that_was_lost_is_submitted_again_with_a_word_until_its_tries_are_used_up(
    tmp_path: Path, stand_in: Path
) -> None:
    followed = Followed(tmp_path, stand_in, max_retries=1)
    followed.queue("PREEMPTED", "RUNNING", "RUNNING")
    assert followed.poll() == ["pending", "running", "running"]
    assert followed.said == ["p000: preempted by Slurm's word (PREEMPTED); submitting it again"]
    assert calls(stand_in, "sbatch") == 2
    second = list(followed.ex.journal.submissions.values())[1]
    own = f"perfsweep:{second.token}|demo.{second.token}"
    program(stand_in, "squeue", f"cat {stand_in}/rows; echo '63|0|63|PREEMPTED|None|n1|{own}'")
    assert followed.poll() == ["failed", "running", "running"]
    assert len(followed.said) == 1 and calls(stand_in, "sbatch") == 2


@pytest.mark.parametrize(
    ("state", "advanced", "note"),
    [
        ("TIMEOUT", False, "timeout by Slurm's word (TIMEOUT): raise cluster.time_min, or lower"),
        ("OUT_OF_MEMORY", False, "out of memory by Slurm's word (OUT_OF_MEMORY): raise cluster.memory"),
        ("TIMEOUT", True, ""),
    ],
)
def test_one_that_advanced_goes_on_and_one_that_did_not_is_told_with_what_to_change(
    followed: Followed, state: str, advanced: bool, note: str
) -> None:
    asked: list[tuple[str, End]] = []
    followed.ex._advanced = lambda name, end: asked.append((name, end)) or advanced  # type: ignore[func-returns-value]
    followed.queue(state, "RUNNING", "RUNNING")
    states = followed.poll()
    assert asked == [("p000", End.TIMEOUT if state == "TIMEOUT" else End.OOM)]
    assert states[0] == ("pending" if advanced else "failed")
    assert followed.ex.notes().get("p000", "").startswith(note)
    assert calls(followed.programs, "sbatch") == 1 + advanced


def asked_again(tmp_path: Path, **fields: object) -> tuple[SlurmExecutor, Clock]:
    ex, clock = on_stand_ins(tmp_path, **{"max_retries": 1, "memory": "4G", **fields})
    ex.submit([job("p000")])
    return ex, clock


@pytest.mark.parametrize(("fields", "submitted"), [({}, 1), ({"memory": "8G"}, 2)])
def test_one_whose_memory_ran_out_too_often_is_asked_for_again_in_vain_until_it_may_have_more(
    tmp_path: Path, stand_in: Path, fields: dict[str, object], submitted: int
) -> None:
    program(stand_in, "sbatch", TAKES)
    ex, _ = asked_again(tmp_path)
    (submission,) = ex.journal.submissions.values()
    for _ in range(3):  # 2 tries for each of max_retries
        ex.journal.ended(submission, 0, Verdict(End.OOM, Action.RETRY, ""))
    again, _ = asked_again(tmp_path, **fields)
    assert calls(stand_in, "sbatch") == submitted
    if submitted == 1:
        assert again.notes()["p000"] == (
            "out of memory 3 times: it is not submitted again: raise cluster.memory, or ask for it with"
            " retry="
        )
        assert again.states() == {"p000": JobState.FAILED}


def test_questions_get_rarer_while_nothing_moves_and_come_soon_after_something_did(
    tmp_path: Path, stand_in: Path
) -> None:
    followed = Followed(tmp_path, stand_in)
    followed.ex._site.poll_min_s, followed.ex._site.poll_max_s = 4.0, 10.0
    followed.ex._interval_s = 4.0
    followed.queue("PENDING", "PENDING", "PENDING")
    pauses = []
    for rows in [("PENDING",) * 3] * 4 + [("RUNNING", "PENDING", "PENDING")]:
        followed.queue(*rows)
        followed.poll()
        pauses.append(followed.ex._next_poll - followed.clock.now)
    assert pauses == [4.0, 6.0, 9.0, 10.0, 4.0]
    before = calls(stand_in, "squeue")
    followed.clock.now += 3.9
    followed.ex.poll()
    assert calls(stand_in, "squeue") == before
    followed.clock.now += 0.2
    followed.ex.poll()
    assert calls(stand_in, "squeue") == before + 1


def test_what_did_all_is_over_by_its_own_record_and_what_waited_is_submitted_while_slurm_is_left_alone(
    tmp_path: Path, stand_in: Path
) -> None:
    followed = Followed(tmp_path, stand_in, max_submit=3)
    followed.ex._site.poll_min_s = followed.ex._interval_s = SiteProfile().poll_min_s
    followed.ex.submit([job("p003"), job("p004")])
    asked_at = []
    for second in range(120):
        followed.queue(*["RUNNING"] * 3)
        followed.clock.now += 1
        before = calls(stand_in, "squeue")
        followed.ex.poll()
        asked_at += [second] * (calls(stand_in, "squeue") - before)
        if second in (10, 20):
            followed.record(second // 20, 0)
        if second == 27:
            assert [state.value for state in followed.ex.states().values()] == [
                *("ended", "ended", "running", "pending", "pending")
            ]
    assert calls(stand_in, "sbatch") == 3, "each pack that waited as soon as there was room"
    assert all(later - first >= 30 for first, later in itertools.pairwise(asked_at)), asked_at
    assert len(asked_at) >= 3


@pytest.mark.parametrize(
    ("rows", "names", "targets", "count"),
    [
        ("RUNNING PENDING PENDING", None, "62", 3),
        ("RUNNING PENDING PENDING", ["p000", "p002"], "62_0 62_2", 2),
        ("RUNNING PENDING PENDING", ["p009"], None, 0),
        ("COMPLETING FAILED RUNNING", None, "62_2", 1),
    ],
    ids=["all", "some", "none", "others are over or ending"],
)
def test_whole_arrays_are_cancelled_by_their_number_and_others_element_by_element(
    followed: Followed, rows: str, names: list[str] | None, targets: str | None, count: int
) -> None:
    followed.queue(*rows.split())
    assert followed.ex.cancel(names) == count
    file = followed.programs / "scancel.calls"
    assert (file.read_text().strip() if file.exists() else None) == targets
    assert len(followed.submission.cancelled) == (3 if names is None else count)


def test_what_was_cancelled_while_slurm_was_silent_is_cancelled_when_it_answers(followed: Followed) -> None:
    program(followed.programs, "squeue", "echo 'Socket timed out' >&2; exit 1")
    with pytest.raises(ClusterError, match=r"^Socket timed out: nothing was cancelled yet\. It is noted"):
        followed.ex.cancel(["p001"])
    assert calls(followed.programs, "scancel") == 0
    followed.queue("RUNNING", "RUNNING", "RUNNING")
    followed.poll()
    assert (followed.programs / "scancel.calls").read_text() == "62_1\n"


def test_what_waits_to_be_submitted_or_tried_again_is_cancelled_without_slurm(
    tmp_path: Path, stand_in: Path
) -> None:
    program(stand_in, "sbatch", TAKES)
    ex, _ = on_stand_ins(tmp_path)
    lost = ex.journal.submitting(["p000"], None)
    ex.journal.ended(lost, 0, Verdict(End.PREEMPTED, Action.RETRY, "lost"))
    ex._jobs["p000"] = job("p000")
    over = ex.journal.submitting(["p001"], None)
    ex.journal.ended(over, 0, failed := Verdict(End.FAILED, Action.FINAL, "its own"))
    ex._jobs["p001"] = job("p001")
    assert ex.cancel() == 0
    assert ex.states() == {"p000": JobState.CANCELLED, "p001": JobState.FAILED}
    cancelled = Verdict(End.CANCELLED, Action.FINAL, "cancelled")
    assert ex.journal.verdicts == {"p000": cancelled, "p001": failed}
    assert calls(stand_in, "squeue") == 0


def test_who_follows_takes_over_what_was_to_be_tried_again(tmp_path: Path, stand_in: Path) -> None:
    program(stand_in, "sbatch", TAKES)
    ex, _ = on_stand_ins(tmp_path)
    ex.submit([job("p000"), job("p001"), job("p002")])
    (submission,) = ex.journal.submissions.values()
    ex.journal.ended(submission, 0, Verdict(End.PREEMPTED, Action.RETRY, "lost"))
    ex.journal.ended(submission, 1, Verdict(End.FAILED, Action.FINAL, "failed"))
    ex.journal.submitting(["p003"], None)  # its submitter died before it wrote what to submit
    files = tmp_path / "sweep/submissions"
    outputs = {f"p{n:03d}": [files / f"62_{n}_0_log.out"] for n in range(3)}
    assert SlurmExecutor.outputs(tmp_path / "sweep") == outputs
    other, _ = on_stand_ins(tmp_path)
    other.follow(["p000", "p001"])
    assert other.states() == {"p000": JobState.PENDING, "p001": JobState.FAILED}
    assert [waiting.name for waiting in other._waiting] == ["p000"]


def test_what_ended_while_nobody_followed_may_be_asked_for_again(followed: Followed, tmp_path: Path) -> None:
    followed.queue("", "RUNNING", "RUNNING")
    followed.record(0, status=0)
    other, _ = on_stand_ins(tmp_path)
    other.submit([job("p000"), job("p001")])
    _, anew = other.journal.submissions.values()
    assert anew.names == ("p000",)


def test_an_array_that_never_arrived_is_submitted_again_but_for_what_a_person_cancelled(
    tmp_path: Path, stand_in: Path
) -> None:
    program(stand_in, "sbatch", "echo Welcome")
    ex, clock = on_stand_ins(tmp_path)
    ex.submit([job("p000"), job("p001")])
    (first,) = ex.journal.submissions.values()
    ex.journal.cancelling(first, [0])
    program(stand_in, "sbatch", TAKES)
    for act in [ex.look] * 4 + [ex.poll] * 4:
        assert first.refused is None or act == ex.poll, "a look changes nothing"
        clock.now += 10
        act()
    assert first.refused == "it never arrived"
    assert ex.states() == {"p000": JobState.CANCELLED, "p001": JobState.PENDING}
    assert [s.names for s in ex.journal.open_submissions()] == [("p001",)]
