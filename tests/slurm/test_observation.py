"""For how long elements have been silent, and which of their files are looked at meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfsweep.slurm.client import Sighting
from perfsweep.slurm.job_outcome import ElementRecords, Missing, Patience, Standing
from perfsweep.slurm.journal import Journal, Submission
from perfsweep.slurm.observation import Observer
from perfsweep.slurm.states import End

STARTED = ElementRecords({}, starts=1)
FAILED = Sighting("62", 0, "65", "FAILED")
RUNNING = Sighting("62", 0, "65", "RUNNING")


class Watch:
    """An observer that waits 30 s and two answers, and a submission of two jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        journal = Journal(folder / "journal")
        self.submission: Submission = journal.submitting(["p000", "p001"], None)
        journal.submitted(self.submission.token, "62")
        self.observer = Observer(folder, Patience(30.0, 10.0))

    def end(self, seen, now: float) -> End | None:
        return self.observer.standing(self.submission, 0, seen, STARTED, now).end


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path)


def test_an_end_without_a_word_counts_from_the_first_answer_that_said_it(watch: Watch) -> None:
    assert [watch.end(FAILED, 60.0), watch.end(RUNNING, 80.0)] == [None, None], (
        "it is alive, and the count begins again"
    )
    assert [watch.end(FAILED, now) for now in (100.0, 129.0, 130.0)] == [None, None, End.NO_RESULT]


def test_silence_of_slurm_itself_does_not_count_with_its_word_that_something_is_gone(watch: Watch) -> None:
    for said_nothing in (Missing.UNPROVEN, Missing.ELSEWHERE):
        watch.end(said_nothing, 60.0)
        assert watch.end(Missing.FORGOTTEN, 100.0) is None
        assert watch.end(Missing.REISSUED, 129.0) is None, "all ways of being gone count together"
        assert watch.end(Missing.FORGOTTEN, 130.0) is End.VANISHED
        watch.end(RUNNING, 140.0)


@pytest.mark.parametrize("ahead_s", [7 * 3600.0, -7 * 3600.0], ids=["ahead", "late"])
def test_a_sign_of_life_is_one_that_has_changed_whatever_the_clock_of_its_node_says(
    watch: Watch, ahead_s: float
) -> None:
    own = watch.folder / watch.submission.token
    own.mkdir()
    (own / "0.beat").touch()

    def seen(beat: float, now: float) -> Standing:
        os.utime(own / "0.beat", (beat + ahead_s, beat + ahead_s))
        return watch.observer.standing(watch.submission, 0, Missing.FORGOTTEN, STARTED, now)

    for now in range(0, 1000, 30):
        alive = seen(float(now), float(now))
        assert (alive.end, alive.running) == (None, True)
    (watch.folder / "62_0_0_log.out").write_bytes(b"Killed by \xff cheese\n")
    silent = [seen(990.0, float(now)) for now in range(1000, 1200, 10)]
    assert [one.end for one in silent].index(End.NO_RESULT) == (990 + 2 * 10 + 30 - 1000) // 10
    assert silent[-1].note == "it ended and gave no reason; Slurm's output ends: Killed by \ufffd cheese"


def test_being_absent_is_proof_after_two_answers_and_the_time_that_a_file_takes(watch: Watch) -> None:
    for index, times, proof in (
        (0, (0.0, 30.0), [False, True]),
        (1, (0.0, 29.0, 30.0), [False, False, True]),
    ):
        key = watch.submission.token, index
        assert [watch.observer.long_absent(key, now) for now in times] == proof
