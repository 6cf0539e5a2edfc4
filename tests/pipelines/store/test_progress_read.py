"""Which records of a sweep's folder are read, and on which machine what counts was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import planned_sweeps
import pytest

from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Kind, Manifest, Outcome, SweepFolder, write_record


def kept(folder: SweepFolder, plan: Manifest, arm: str, number: int, **own: Any) -> None:
    place = planned_sweeps.begun(folder, plan, arm, round=number)
    facts = {"code": "c", "method": plan.sweep.measure.method, "keys": {"device": "one"}, "round": number}
    write_record(place, planned_sweeps.record(arm, **{**facts, **own}))


def test_damaged_records_are_named_and_trials_that_run_are_passed_over(tmp_path: Path) -> None:
    folder, plan = SweepFolder(tmp_path), planned_sweeps.manifest()
    for number in (0, 3):
        kept(folder, plan, planned_sweeps.NAIVE, number)
    (planned_sweeps.begun(folder, plan, planned_sweeps.NAIVE, round=1) / "record.json").write_text("{")
    planned_sweeps.begun(folder, plan, planned_sweeps.NAIVE, round=2)
    found = read_progress(folder, plan)
    assert [one.record.round for one in found.every] == [0, 3]
    assert len(found.damaged) == 1 and "-r001-a0/record.json" in found.damaged[0]


@pytest.mark.parametrize(("attempt", "named"), [(0, True), (1, True), (3, False)])
def test_a_damaged_record_that_a_later_attempt_replaces_is_missed_by_nobody(
    tmp_path: Path, attempt: int, named: bool
) -> None:
    folder, plan = SweepFolder(tmp_path), planned_sweeps.manifest()
    broken = planned_sweeps.begun(folder, plan, planned_sweeps.NAIVE, round=1, attempt=2)
    (broken / "record.json").write_text("{")
    again = planned_sweeps.begun(
        folder, plan, planned_sweeps.NAIVE, round=1, attempt=attempt, outcome=Outcome.OK
    )
    other = planned_sweeps.begun(folder, plan, planned_sweeps.NAIVE, round=2, attempt=3, outcome=Outcome.OK)
    assert again.name.endswith(f"-a{attempt}") and other.exists()
    assert bool(read_progress(folder, plan).damaged) is named


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"code": "d"}, "other code"),
        ({"method": "m"}, "other settings of measure"),
        ({"placement": "2 nodes"}, "other nodes"),
        ({"keys": {"device": "two"}}, "another machine, device or version"),
    ],
)
def test_records_of_another_experiment_are_counted_by_what_sets_them_apart(
    tmp_path: Path, own: dict, why: str | None
) -> None:
    folder, plan = SweepFolder(tmp_path), planned_sweeps.manifest()
    for number in range(2):
        kept(folder, plan, planned_sweeps.NAIVE, number, **own)
    found = read_progress(folder, plan, {"device": "one"})
    assert dict(found.left_out) == ({why: 2} if why else {})
    assert len(found.every) == (0 if why else 2)


@pytest.mark.parametrize(
    ("two", "counts", "elsewhere"),
    [((0, 1, 2), "two", "one"), ((5,), "one", "two"), ((4, 5), "two", "one")],
    ids=["most rounds", "fewer", "of equals the last used"],
)
def test_the_machine_counts_that_most_rounds_ran_on(
    tmp_path: Path, two: tuple[int, ...], counts: str, elsewhere: str
) -> None:
    arms = (planned_sweeps.NAIVE,)
    own = {"packs": (planned_sweeps.pack(*arms, rounds=6),), "effects": ()}
    folder, plan = SweepFolder(tmp_path), planned_sweeps.manifest(planned_sweeps.arm(arms[0]), **own)
    for number in (3, 4) if two == (5,) else (2, 3):
        kept(folder, plan, arms[0], number, started=1.0, keys={"device": "one", "data": "x"})
    for number in two:
        place = planned_sweeps.begun(folder, plan, arms[0], round=number, attempt=1)
        facts = {"code": "c", "method": plan.sweep.measure.method, "attempt": 1, "started": 2.0}
        keys = {"device": "two", "data": "y"}
        write_record(place, planned_sweeps.record(arms[0], round=number, keys=keys, **facts))
    found = read_progress(folder, plan)
    assert found.machine == {"device": counts}
    assert [one.machine for one in found.elsewhere] == [{"device": elsewhere}]
    assert len(found.every) == 2 + len(two)
    assert len(found.timed[arms[0]]) + len(found.elsewhere[0].timed[arms[0]]) == 2 + len(two)


def test_a_machine_that_timed_nothing_to_the_end_is_not_the_one_that_counts(tmp_path: Path) -> None:
    folder, plan = SweepFolder(tmp_path), planned_sweeps.manifest()
    for device, kind, number, outcome in (
        ("one", Kind.TIMING, 0, Outcome.OK),
        ("two", Kind.TIMING, 1, Outcome.OOM),
        ("two", Kind.EVIDENCE, None, Outcome.OK),
    ):
        place = planned_sweeps.begun(folder, plan, planned_sweeps.NAIVE, kind=kind, round=number)
        facts = {"code": "c", "method": plan.sweep.measure.method, "keys": {"device": device}}
        own = {**facts, "round": number, "outcome": outcome}
        write_record(place, planned_sweeps.record(planned_sweeps.NAIVE, kind, **own))
    found = read_progress(folder, plan)
    assert (found.machine, found.elsewhere) == ({"device": "one"}, [])
    assert len(found.every) == 3, "what was found out elsewhere stays"
