"""Attempts at a pack: each start has a number of its own, and the later one of two measures."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from planned_sweeps import FAST, NAIVE, begun, manifest, pack

from perfsweep.pipelines.store.records import Kind, Outcome, SweepFolder, TrialRecord, read_record, read_spec
from perfsweep.pipelines.store.writers import (
    AtWork,
    Superseded,
    advanced,
    at_work,
    claim,
    record_oom,
    stop_if_superseded,
)

PLAN = manifest(packs=(pack(NAIVE, FAST, rounds=2), pack(NAIVE, FAST, id="p001")))
PACK = PLAN.packs[0]


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    found = SweepFolder(tmp_path)
    found.write_manifest(PLAN)
    return found


def test_trials_of_attempts_that_nobody_claimed_count(folder: SweepFolder) -> None:
    begun(folder, PLAN, FAST, round=0, attempt=4)
    begun(folder, PLAN, NAIVE, round=0, attempt=9, pack="p001")
    assert claim(folder, PACK) == 5


def test_of_two_copies_the_earlier_stops(folder: SweepFolder) -> None:
    claim(folder, PACK), claim(folder, PACK)
    stop_if_superseded(folder, "p000", 1)
    stop_if_superseded(folder, "p000", 2)
    with pytest.raises(Superseded, match="attempt 1 at p000 has started: attempt 0 stops here"):
        stop_if_superseded(folder, "p000", 0)


@pytest.mark.parametrize(
    ("trials", "goes_on"),
    [
        ([], False),
        ([(NAIVE, {"round": 0})], False),
        ([(NAIVE, {"round": 0}), (FAST, {"round": 0})], True),
        ([(NAIVE, {"round": 0}), (FAST, {"round": 1})], False),
        ([(NAIVE, {"round": 0, "attempt": 0}), (FAST, {"round": 0, "attempt": 0})], False),
        ([(FAST, {"kind": Kind.EVIDENCE})], True),
        ([(FAST, {"kind": Kind.EVIDENCE, "pack": "p001"})], False),
        ([(FAST, {"kind": Kind.QUALITY})], True),
    ],
    ids=[
        "nothing",
        "half a round",
        "a round",
        "halves of two",
        "an earlier attempt's",
        "evidence",
        "another pack's",
        "a training to the target",
    ],
)
def test_an_attempt_gets_on_by_a_round_or_a_trial_that_is_needed_once(
    folder: SweepFolder, trials: list, goes_on: bool
) -> None:
    claim(folder, PACK), claim(folder, PACK)
    for arm, own in trials:
        begun(folder, PLAN, arm, **{"attempt": 1, "outcome": Outcome.OK, **own})
    assert advanced(folder, PLAN, PACK) is goes_on


@pytest.mark.parametrize(
    ("own", "found"),
    [({}, True), ({"attempt": 0}, False), ({"outcome": Outcome.OK}, False)],
    ids=["that ran", "of an earlier attempt", "that had ended"],
)
def test_memory_that_ended_a_pack_is_the_outcome_of_the_trial_that_ran(
    folder: SweepFolder, own: dict, found: bool
) -> None:
    claim(folder, PACK), claim(folder, PACK)
    place = begun(folder, PLAN, FAST, **{"attempt": 1, "round": 0, **own})
    os.utime(place / "spec.json", (time.time() - 3600,) * 2)
    assert record_oom(folder, PACK) is found
    record = read_record(place)
    if found:
        assert record is not None and record.outcome is Outcome.OOM and record.failure is not None
        assert record.ended - record.started == pytest.approx(3600, abs=60)
        assert record.failure.text == (
            "JobOutOfMemory: Slurm ended the job because memory ran out. Ask for more with cluster.memory."
        )
    else:
        assert record is None or record.outcome is Outcome.OK


@pytest.mark.parametrize("lost", [False, True], ids=["noted", "note lost"])
def test_of_warm_arms_that_memory_ended_together_the_one_whose_turn_it_was_is_out_of_memory(
    folder: SweepFolder, lost: bool
) -> None:
    claim(folder, PACK)
    places = {arm: begun(folder, PLAN, arm, attempt=0, round=0) for arm in (NAIVE, FAST)}
    at_work_now = AtWork(at_work(folder, PACK.id))
    at_work_now.note(places[NAIVE]), at_work_now.note(places[FAST])
    if lost:
        at_work(folder, PACK.id).write_text("")
    assert record_oom(folder, PACK)
    assert (read_record(places[NAIVE]) is not None) is lost
    assert read_record(places[FAST]) is not None


def test_a_trial_costs_what_it_took_where_the_clock_is_set_meanwhile(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = read_spec(begun(folder, PLAN, FAST, round=0) / "spec.json")
    began, real = time.monotonic() - 2.0, time.time
    monkeypatch.setattr("time.time", lambda: real() - 8 * 3600.0)
    found = TrialRecord.of(spec, began, outcome=Outcome.OK)
    assert 2.0 <= found.ended - found.started + 1e-3 < 60.0
