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
HELD = "pending: JobHeldUser: release it with `scontrol release`, or cancel it"
UNCLEAR = (
    "and Slurm has forgotten it: it was cancelled or lost. It is not submitted again unasked: the same sweep"
    " command does that"
)
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
        (seen("COMPLETING"), Standing(None, "completing", running=True), ""),
        (seen("PENDING", "JobHeldUser"), Standing(None, HELD, held=True, reason="JobHeldUser"), ""),
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
        (seen("FAILED", "NonZeroExitCode"), ElementRecords({0: ExitRecord(3)}, 1), "it ended with status 3"),
        (seen("FAILED"), ElementRecords({0: ExitRecord(139)}, 1), "its process was ended by signal 11"),
        (seen("FAILED"), ASKED, "stopped by SIGTERM"),
        (Missing.FORGOTTEN, STARTED, "unknown to Slurm, and without a sign of life"),
        (Missing.FORGOTTEN, NOTHING, f"it never started, {UNCLEAR}"),
        (Missing.TAKEN_OUT, ASKED, f"stopped by SIGTERM, {UNCLEAR}"),
    ],
)
def test_how_one_ended_is_told_in_a_sentence(
    sign: Sighting | Missing, own: ElementRecords, note: str
) -> None:
    assert after(sign, own).note == note


def alive(seconds_ago: float) -> ElementRecords:
    return ElementRecords({}, starts=1, alive_at=NOW - seconds_ago)


@pytest.mark.parametrize(
    ("sign", "own", "silence", "standing"),
    [
        (Missing.UNPROVEN, STARTED, LONG, Standing(None, "Slurm says nothing about it", running=True)),
        (Missing.UNPROVEN, NOTHING, LONG, Standing(None, "Slurm says nothing about it")),
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
        (seen("COMPLETED"), STARTED, Silence(30, 1), End.NO_RESULT),
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
