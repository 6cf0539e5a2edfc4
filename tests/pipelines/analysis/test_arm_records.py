"""Times come from the attempts that count, failures from all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines.analysis.arm_records import ArmRecords
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Kind, Outcome, Pack, TrialRecord
from perfsweep.workloads.api import Device

PACK = Pack(id="p000", orders=(("arm",), ("arm",)), start="fork")


def trial(number: int, attempt: int, **fields: object) -> StoredTrial:
    own = {"arm": "arm", "kind": Kind.TIMING, "pack": "p000", "outcome": Outcome.OK, **fields}
    folder = Path(f"{number}-{attempt}")
    return StoredTrial(folder, TrialRecord(round=number, attempt=attempt, ended=attempt, **own))  # type: ignore[arg-type]


def test_the_attempt_that_counts_gives_the_times_and_not_the_latest() -> None:
    progress = Progress()
    for one in (trial(0, 0, setup_s=1.0), trial(0, 1, setup_s=9.0, disturbed=("a neighbour",))):
        progress.add(one)
    assert ArmRecords(progress, [PACK]).median("arm", "setup_s") == 1.0


def test_a_failure_is_kept_where_a_later_attempt_ended_well() -> None:
    progress = Progress()
    for one in (trial(0, 0, outcome=Outcome.FAILED), trial(0, 1), trial(1, 1)):
        progress.add(one)
    records = ArmRecords(progress, [PACK])
    assert [record.attempt for record in records.failed("arm")] == [0]
    assert len(records.timed("arm")) == 2


def test_packs_that_were_not_asked_for_do_not_count() -> None:
    progress = Progress()
    progress.add(trial(0, 0))
    assert ArmRecords(progress, [PACK]).timed("arm")
    assert not ArmRecords(progress, [PACK.model_copy(update={"id": "p001"})]).timed("arm")


def counted(arm: str = "arm", outcome: Outcome = Outcome.OK, **fields: object) -> StoredTrial:
    own = {"arm": arm, "pack": "p000", "round": None, "attempt": 0, "outcome": outcome, **fields}
    return StoredTrial(Path(f"{arm}-counting"), TrialRecord(kind=Kind.COUNTING, **own))  # type: ignore[arg-type]


def records_of(*trials: StoredTrial, **own: object) -> ArmRecords:
    progress = Progress()
    for one in trials:
        progress.add(one)
    return ArmRecords(progress, [PACK], **own)  # type: ignore[arg-type]


def test_a_round_that_counts_gives_no_times_of_a_trial_that_failed_in_it_or_is_left_out() -> None:
    failed, good = trial(0, 0, outcome=Outcome.FAILED, setup_s=9.0), trial(1, 0, setup_s=1.0)
    records = records_of(failed, good, counted())
    assert records.timed("arm") == [good.record]
    assert [one.folder for one in records.every_timed()] == [Path("1-0")]
    assert [(one.kind, one.outcome) for one in records.all("arm")] == [
        (Kind.TIMING, Outcome.OK),
        (Kind.TIMING, Outcome.FAILED),
        (Kind.COUNTING, Outcome.OK),
    ]
    left_out = records_of(failed, good, left_out={"1-0"})
    assert left_out.timed("arm") == [] and left_out.median("arm", "setup_s") is None


def test_a_counting_trial_that_failed_counted_nothing_and_is_told() -> None:
    assert records_of(counted(counters={"kernels": 3.0})).counters("arm") == {"kernels": 3.0}
    failed = records_of(counted(outcome=Outcome.OOM, counters={"kernels": 3.0}), trial(0, 0))
    assert failed.counters("arm") is None
    assert [one.kind for one in failed.failed("arm")] == [Kind.COUNTING]


def test_what_was_found_on_disk_is_counted_by_timing_trials() -> None:
    hit = trial(0, 0, counters={"cache_hits": 2.0, "kernels": 9.0})
    found = records_of(counted(counters={"cache_hits": 0.0, "kernels": 3.0}), hit).counters("arm")
    assert found == {"cache_hits": 2.0, "kernels": 3.0}


@pytest.mark.parametrize(
    ("counters", "cold", "once"),
    [
        ({"compile_s": 20.0}, 20.0, 1.0 + 3.0 + 19.0),  # a trial compiled for a second of its own
        ({"compile_s": 0.0}, 0.0, 1.0 + 3.0),  # never cheaper than what a trial took
        ({}, 1.0, 1.0 + 3.0),
    ],
)
def test_an_arm_costs_once_what_it_takes_with_nothing_compiled_yet(
    counters: dict, cold: float, once: float
) -> None:
    shared = {"first_iteration_s": 3.0, "compile_s": 1.0}
    timed = [trial(number, 0, setup_s=2.0 * number, **shared) for number in (0, 1)]
    records = records_of(counted(counters=counters), *timed)
    assert records.cold_compile_s("arm") == cold
    assert records.one_off_s("arm") == once


def test_an_arm_without_times_costs_nothing_known() -> None:
    assert records_of(counted(counters={"compile_s": 20.0})).one_off_s("arm") is None
    assert records_of().cold_compile_s("arm") is None


@pytest.mark.parametrize(("kept", "capability"), [([9, 0], (9, 0)), (None, None)])
def test_the_device_is_the_one_that_a_trial_recorded(
    kept: list[int] | None, capability: tuple | None
) -> None:
    facts = {"type": "cuda", "count": 2, "capability": kept}
    records = records_of(counted("bare"), counted(environment={"device": facts}))
    assert records.device() == Device("cuda", 2, capability=capability)
    assert records_of(counted("bare")).device() == Device()
