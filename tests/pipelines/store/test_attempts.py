"""Attempts at a pack: each start has a number of its own, and the later one of two measures."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from planned_sweeps import FAST, NAIVE, begun, manifest, pack

from perfsweep.pipelines.store.locks import (
    Superseded,
    advanced,
    claim,
    newest,
    record_oom,
    stop_if_superseded,
)
from perfsweep.pipelines.store.records import Kind, Outcome, SweepFolder, read_record

PLAN = manifest(packs=(pack(NAIVE, FAST, rounds=2), pack(NAIVE, FAST, id="p001")))
PACK = PLAN.packs[0]


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    found = SweepFolder(tmp_path)
    found.write_manifest(PLAN)
    return found


def test_attempts_count_from_zero_and_each_pack_has_its_own(folder: SweepFolder) -> None:
    assert newest(folder, "p000") == -1
    assert [claim(folder, PACK) for _ in range(3)] == [0, 1, 2]
    assert claim(folder, PLAN.packs[1]) == 0
    assert newest(folder, "p000") == 2


def test_trials_of_attempts_that_nobody_claimed_count(folder: SweepFolder) -> None:
    begun(folder, PLAN, FAST, round=0, attempt=4)
    begun(folder, PLAN, NAIVE, round=0, attempt=9, pack="p001")
    assert claim(folder, PACK) == 5


def test_a_claim_says_who_made_it(folder: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    claim(folder, PACK)
    facts = json.loads((folder.pack_dir("p000") / "attempts/0.json").read_text())
    assert (facts["job"], facts["restarts"]) == ("17", 2)
    monkeypatch.delenv("SLURM_RESTART_COUNT")
    claim(folder, PACK)
    assert json.loads((folder.pack_dir("p000") / "attempts/1.json").read_text())["restarts"] == 0


def test_of_two_copies_the_earlier_stops(folder: SweepFolder) -> None:
    claim(folder, PACK), claim(folder, PACK)
    stop_if_superseded(folder, "p000", 1)
    stop_if_superseded(folder, "p000", 2)
    with pytest.raises(Superseded, match="attempt 1 at p000 has started: attempt 0 stops here"):
        stop_if_superseded(folder, "p000", 0)


def test_an_interrupt_is_no_mistake_that_a_handler_takes() -> None:
    assert not issubclass(Superseded, Exception)


@pytest.mark.parametrize(
    ("trials", "goes_on"),
    [
        ([], False),
        ([(NAIVE, {"round": 0})], False),
        ([(NAIVE, {"round": 0}), (FAST, {"round": 0})], True),
        ([(NAIVE, {"round": 1}), (FAST, {"round": 1})], True),
        ([(NAIVE, {"round": 0}), (FAST, {"round": 1})], False),
        ([(NAIVE, {"round": 0, "attempt": 0}), (FAST, {"round": 0, "attempt": 0})], False),
        ([(FAST, {"kind": Kind.EVIDENCE})], True),
        ([(FAST, {"kind": Kind.EVIDENCE, "attempt": 0})], False),
        ([(FAST, {"kind": Kind.EVIDENCE, "replicate": 1})], True),
        ([(FAST, {"kind": Kind.EVIDENCE, "pack": "p001"})], False),
        ([(FAST, {"kind": Kind.QUALITY})], True),
        ([(FAST, {"kind": Kind.QUALITY, "attempt": 0})], False),
        ([(FAST, {"kind": Kind.QUALITY, "pack": "p001"})], False),
        ([(FAST, {"kind": Kind.COURSE})], True),
        ([(FAST, {"kind": Kind.COURSE, "attempt": 0})], False),
    ],
    ids=[
        "nothing",
        "half a round",
        "a round",
        "another round",
        "halves of two",
        "an earlier attempt's",
        "evidence",
        "earlier evidence",
        "of another seed",
        "another pack's",
        "a training to the target",
        "an earlier training",
        "another pack's training",
        "a course",
        "an earlier course",
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
    [({}, True), ({"attempt": 0}, False), ({"pack": "p001"}, False), ({"outcome": Outcome.OK}, False)],
    ids=["that ran", "of an earlier attempt", "of another pack", "that had ended"],
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


def test_a_trial_takes_no_less_than_no_time_where_the_file_systems_clock_is_ahead(
    folder: SweepFolder,
) -> None:
    claim(folder, PACK)
    place = begun(folder, PLAN, FAST, attempt=0, round=0)
    ahead = time.time() + 7 * 3600
    os.utime(place / "spec.json", (ahead, ahead))
    assert record_oom(folder, PACK)
    record = read_record(place)
    assert record is not None and record.ended - 60 < record.started <= record.ended < ahead


def test_a_folder_in_which_no_trial_had_begun_gets_no_record(folder: SweepFolder) -> None:
    claim(folder, PACK)
    place = begun(folder, PLAN, FAST, round=0)
    (place / "spec.json").unlink()
    assert not record_oom(folder, PACK)
    assert read_record(place) is None
