"""Times come from the attempts that count, failures from all of them."""

from __future__ import annotations

from pathlib import Path

from pipelines.analysis.arm_records import ArmRecords
from pipelines.store.progress import Progress, StoredTrial
from pipelines.store.records import Kind, Outcome, Pack, TrialRecord

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
