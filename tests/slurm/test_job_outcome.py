"""What a person reads about an element after an answer of Slurm: does it run, is it held, and why."""

from __future__ import annotations

import pytest

from perfsweep.slurm.client import Sighting
from perfsweep.slurm.job_outcome import (
    ElementRecords,
    ExitRecord,
    Missing,
    Patience,
    Silence,
    Standing,
    judge,
)
from perfsweep.slurm.states import End

PATIENCE = Patience(file_s=30, heartbeat_s=10)
"""Signs of life are fresh for 50 s."""

NOW = 1000.0
LONG = Silence(99.0, 3)
NOTHING = ElementRecords({})
STARTED = ElementRecords({}, starts=1)
ASKED = ElementRecords({0: ExitRecord(75, ("SIGTERM",))}, starts=1)
KILLED_FIRST = ElementRecords({1: ExitRecord(75, ("SIGTERM",))}, starts=2)


def seen(state: str, reason: str = "None", start: str = "") -> Sighting:
    return Sighting("7", 0, "7", state, reason, start=start)


def after(sign: Sighting | Missing, own: ElementRecords, silence: Silence = LONG) -> Standing:
    return judge(sign, own, silence, NOW, PATIENCE)


@pytest.mark.parametrize(
    ("sign", "standing", "start"),
    [
        (seen("RUNNING", start="then"), Standing(None, "running", running=True), ""),
        (seen("PENDING", "Priority", "then"), Standing(None, "pending: Priority", reason="Priority"), "then"),
        (seen("CONFIGURING", start="then"), Standing(None, "configuring"), "then"),
        (seen("REQUEUED", start="then"), Standing(None, "requeued"), "then"),
        (seen("COMPLETING"), Standing(None, "completing", running=True), ""),
        (
            seen("PENDING", "JobHeldUser"),
            Standing(
                None,
                "pending: JobHeldUser: release it with `scontrol release`, or cancel it",
                held=True,
                reason="JobHeldUser",
            ),
            "",
        ),
        (
            seen("SPECIAL_EXIT", ""),
            Standing(
                None,
                "special_exit: release it with `scontrol release`, or cancel it",
                running=True,
                held=True,
            ),
            "",
        ),
    ],
    ids=lambda value: value.state if isinstance(value, Sighting) else "",
)
def test_of_one_that_is_not_over_slurms_state_reason_and_the_remedy_are_told(
    sign: Sighting, standing: Standing, start: str
) -> None:
    found = after(sign, STARTED)
    assert (found, found.start) == (standing, start)


@pytest.mark.parametrize(
    ("sign", "own", "note"),
    [
        (seen("PREEMPTED"), STARTED, "preempted by Slurm's word (PREEMPTED)"),
        (seen("NODE_FAIL", "NodeDown"), STARTED, "node failed by Slurm's word (NODE_FAIL NodeDown)"),
        (
            seen("FAILED", "NonZeroExitCode"),
            ElementRecords({0: ExitRecord(3)}, starts=1),
            "it ended with status 3",
        ),
        (seen("FAILED"), ElementRecords({0: ExitRecord(128)}, starts=1), "it ended with status 128"),
        (
            seen("FAILED"),
            ElementRecords({0: ExitRecord(139)}, starts=1),
            "its process was ended by signal 11",
        ),
        (
            seen("FAILED"),
            ElementRecords({0: ExitRecord(137)}, 1, None, "Killed\n"),
            "its process was killed (FAILED); Slurm's output ends: Killed",
        ),
        (
            seen("FAILED"),
            ElementRecords({0: ExitRecord(137)}, 1, None, "slurmstepd: oom_kill event"),
            "memory ran out",
        ),
        (
            seen("FAILED"),
            ElementRecords({}, 1, None, "slurmstepd: error: Detected 1 oom-kill event(s)"),
            "Slurm ended it because memory ran out",
        ),
        (seen("FAILED"), ASKED, "stopped by SIGTERM"),
        (
            seen("FAILED"),
            ElementRecords({0: ExitRecord(79, ("SIGTERM", "SIGINT"))}, starts=1),
            "stopped by SIGINT",
        ),
        (seen("FAILED"), ElementRecords({0: ExitRecord(143)}, starts=1), "stopped by SIGTERM"),
        (
            seen("FAILED"),
            ElementRecords({0: ExitRecord(75, ("SIGUSR2", "SIGTERM"))}, starts=1),
            "stopped before its time limit",
        ),
        (seen("FAILED"), ElementRecords({0: ExitRecord(143, ("SIGUSR2",))}, starts=1), "stopped by SIGUSR2"),
        (Missing.FORGOTTEN, STARTED, "unknown to Slurm, and without a sign of life"),
        (Missing.TAKEN_OUT, NOTHING, "taken out of the queue before it started"),
        (
            Missing.FORGOTTEN,
            NOTHING,
            "it never started, and Slurm has forgotten it: it was cancelled or lost. It is not"
            " submitted again unasked: the same sweep command does that",
        ),
        (
            Missing.TAKEN_OUT,
            ASKED,
            "stopped by SIGTERM, and Slurm has forgotten it: it was cancelled or lost. It is not"
            " submitted again unasked: the same sweep command does that",
        ),
    ],
)
def test_how_one_ended_is_told_in_a_sentence(
    sign: Sighting | Missing, own: ElementRecords, note: str
) -> None:
    assert after(sign, own).note == note


@pytest.mark.parametrize("status", [75, 79, 143])
def test_a_word_that_was_asked_for_is_none_of_its_own(status: int) -> None:
    assert not ExitRecord(status).final
    assert ExitRecord(127).final and not ExitRecord(128).final


def alive(seconds_ago: float) -> ElementRecords:
    return ElementRecords({}, starts=1, alive_at=NOW - seconds_ago)


@pytest.mark.parametrize(
    ("sign", "own", "silence", "standing"),
    [
        (Missing.UNPROVEN, STARTED, LONG, Standing(None, "Slurm says nothing about it", running=True)),
        (Missing.UNPROVEN, NOTHING, LONG, Standing(None, "Slurm says nothing about it")),
        (Missing.UNPROVEN, ASKED, LONG, Standing(None, "Slurm says nothing about it")),
        (Missing.UNPROVEN, KILLED_FIRST, LONG, Standing(None, "Slurm says nothing about it")),
        (
            Missing.ELSEWHERE,
            alive(99),
            LONG,
            Standing(None, "on another cluster: follow it from a machine of that cluster", held=True),
        ),
        (Missing.ELSEWHERE, alive(9), LONG, Standing(None, "on another cluster", running=True)),
        (Missing.FORGOTTEN, alive(49), LONG, Standing(None, "unknown to Slurm, and alive", running=True)),
        (Missing.FORGOTTEN, alive(9), Silence(99, 1), Standing(None, "unknown to Slurm", running=True)),
        (Missing.FORGOTTEN, alive(99), Silence(29, 3), Standing(None, "unknown to Slurm")),
        (
            Missing.TAKEN_OUT,
            alive(99),
            Silence(29, 3),
            Standing(None, "unknown to Slurm, which knows others of its array"),
        ),
        (
            Missing.REISSUED,
            alive(99),
            Silence(29, 3),
            Standing(None, "unknown to Slurm, which gave its number to another job"),
        ),
        (seen("COMPLETED"), STARTED, Silence(29, 3), Standing(None, "completed, waiting for its own record")),
    ],
)
def test_what_is_no_proof_yet_says_what_is_known_and_whether_it_seems_to_run(
    sign: Sighting | Missing, own: ElementRecords, silence: Silence, standing: Standing
) -> None:
    assert after(sign, own, silence) == standing


@pytest.mark.parametrize(
    ("sign", "own", "silence", "end"),
    [
        (Missing.FORGOTTEN, alive(51), LONG, End.VANISHED),
        (Missing.FORGOTTEN, STARTED, Silence(30, 2), End.VANISHED),
        (Missing.FORGOTTEN, STARTED, Silence(30, 1), None),
        (seen("COMPLETED"), STARTED, Silence(30, 1), End.NO_RESULT),
        (Missing.UNPROVEN, ElementRecords({0: ExitRecord(3)}, 1), Silence(30, 1), None),
        (Missing.UNPROVEN, ElementRecords({0: ExitRecord(3)}, 1), Silence(30, 2), End.FAILED),
    ],
)
def test_silence_is_proof_after_two_answers_and_the_time_that_a_file_takes(
    sign: Sighting | Missing, own: ElementRecords, silence: Silence, end: End | None
) -> None:
    assert after(sign, own, silence).end is end


def test_one_that_a_person_cancelled_ends_so_once_its_own_word_or_silence_says_that_it_is_over() -> None:
    asked = judge(Missing.FORGOTTEN, ASKED, LONG, NOW, PATIENCE, cancelled=True)
    assert (asked.end, asked.note) == (End.CANCELLED, "cancelled")
    running = judge(seen("RUNNING"), STARTED, LONG, NOW, PATIENCE, cancelled=True)
    assert running == Standing(None, "running", running=True)
    done = judge(
        Missing.FORGOTTEN, ElementRecords({0: ExitRecord(0)}, 1), LONG, NOW, PATIENCE, cancelled=True
    )
    assert done.end is End.DONE


@pytest.mark.parametrize(
    ("records", "last", "begun"),
    [
        (NOTHING, None, False),
        (STARTED, None, True),
        (ElementRecords({0: ExitRecord(75)}, starts=1), 75, False),
        (ElementRecords({0: ExitRecord(75)}, starts=2), None, True),
        (ElementRecords({0: ExitRecord(75), 1: ExitRecord(3)}, starts=2), 3, False),
    ],
)
def test_the_latest_start_speaks(records: ElementRecords, last: int | None, begun: bool) -> None:
    assert (records.last and records.last.status, records.begun) == (last, begun)


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (None, ""),
        ("\n \n", ""),
        ("one\n two \n\n", "two"),
        (
            "perfsweep: cluster.setup line 1 ended with status 1: a\nsrun: error\n",
            "perfsweep: cluster.setup line 1 ended with status 1: a",
        ),
    ],
)
def test_of_slurms_output_the_last_line_is_told_or_that_about_a_set_up_line(
    output: str | None, line: str
) -> None:
    assert ElementRecords({}, output=output).last_line == line
