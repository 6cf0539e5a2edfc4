"""What a comparison says about records that do not count, and about what arms wait for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfsweep.pipelines.analysis import collect, compare
from perfsweep.pipelines.analysis.comparable import machine_name, told_apart
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import (
    Arm,
    Kind,
    Manifest,
    Outcome,
    SweepFolder,
    TrialRecord,
    TrialSpec,
    write_record,
)
from perfsweep.workloads.api import Device


@pytest.fixture
def sweep(command) -> tuple[SweepFolder, Manifest]:
    """A planned sweep of two arms, nothing measured."""
    toy = command(
        DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 3, "repeats": 1}
    )
    manifest = plan.make_plan(toy, Device())
    folder = SweepFolder(Path(toy.runs) / manifest.sweep.name)
    folder.write_manifest(manifest)
    return folder, manifest


def measured(
    folder: SweepFolder, manifest: Manifest, arm: Arm, number: int | None, attempt: int = 0, **fields: object
) -> None:
    sweep = manifest.sweep
    kind = Kind.TIMING if number is not None else Kind.COUNTING
    spec = TrialSpec(
        sweep=sweep.name,
        workload=sweep.workload,
        config=sweep.config,
        arm=arm,
        kind=kind,
        pack="p000",
        round=number,
        attempt=attempt,
        measure=sweep.measure,
        code=sweep.code,
        cache_dir="",
    )
    record = TrialRecord.of(
        spec, 0.0, outcome=Outcome.OK, units=1.0, iterations=1, region_ns=1000 + (number or 0)
    )
    folder.trial_dir(spec).mkdir(parents=True, exist_ok=True)
    write_record(folder.trial_dir(spec), replace(record, **fields))


def compared(folder: SweepFolder, manifest: Manifest) -> Comparison:
    return compare.compare(folder, manifest, collect.collect(folder, manifest))


def fill(folder: SweepFolder, manifest: Manifest) -> None:
    for arm in manifest.arms:
        for number in range(3):
            measured(folder, manifest, arm, number)


@pytest.mark.parametrize(("field", "why"), [("code", "other code"), ("method", "other settings of measure")])
def test_records_of_another_experiment_are_counted_and_left_out(sweep, field: str, why: str) -> None:
    folder, manifest = sweep
    fill(folder, manifest)
    measured(folder, manifest, manifest.arms[0], 0, attempt=1, **{field: "another"})
    found = compared(folder, manifest)
    assert f"1 records of {why} are left out" in found.notes
    assert found.effects[0].rounds == 3


def test_a_disturbed_round_that_was_repeated_is_said_and_its_repeat_counts(sweep) -> None:
    folder, manifest = sweep
    fill(folder, manifest)
    for arm in manifest.arms:
        measured(folder, manifest, arm, 3)  # beyond the plan: nobody asked for it
    first, second = manifest.arms
    measured(folder, manifest, first, 1, attempt=1, region_ns=5000)
    measured(folder, manifest, second, 1, attempt=1, region_ns=5000)
    assert not any("measured again" in note for note in compared(folder, manifest).notes), (
        "neither attempt was disturbed"
    )
    for attempt, disturbed in ((2, ("a neighbour",)), (3, ())):
        for arm in manifest.arms:
            measured(folder, manifest, arm, 2, attempt=attempt, disturbed=disturbed, region_ns=7000 + attempt)
    trials = collect.collect(folder, manifest)
    assert (
        "1 round was disturbed and measured again; the disturbed attempts do not count"
        in compared(folder, manifest).notes
    )
    used = trials.filter(trials["used"])
    assert sorted(used["attempt"].unique()) == [0, 1, 3]


def test_an_arm_that_waits_for_its_host_is_named(sweep) -> None:
    folder, manifest = sweep
    fill(folder, manifest)
    busy = {"baseline": 300.0, "work=single": 950.0}
    for arm in manifest.arms:
        measured(folder, manifest, arm, None, counters={"device_busy_ns": busy[arm.label]})
    notes = compared(folder, manifest).notes
    assert "naive: host-bound: the device works 30% of the time" in notes
    assert "work=single: device-bound: the device works 95% of the time" in notes


def test_the_rounds_that_are_there_say_what_they_can_see(sweep) -> None:
    folder, manifest = sweep
    fill(folder, manifest)
    measured(folder, manifest, manifest.arms[0], 2, attempt=1, region_ns=1300)
    measured(folder, manifest, manifest.arms[1], 2, attempt=1, region_ns=1000)
    (seen,) = [note for note in compared(folder, manifest).notes if "you can see" in note]
    assert seen.startswith("with 3 rounds you can see ") and "one comparison" in seen


@pytest.mark.parametrize(
    ("theirs", "name", "differences"),
    [
        ({"device": "A", "torch": "2"}, "A", "device is A and not B"),
        ({"device": "C", "torch": "2"}, "C", "device is C and not B"),
        ({"device": "B", "torch": "3"}, "torch is 3 and not 2", "torch is 3 and not 2"),
        ({"device": "B", "torch": "1"}, "torch is 1 and not 2", "torch is 1 and not 2"),
        ({"device": "B"}, "torch is none and not 2", "torch is none and not 2"),
        (
            {"device": "B", "torch": "2", "driver": "9"},
            "driver is 9 and not none",
            "driver is 9 and not none",
        ),
    ],
)
def test_another_machine_goes_by_its_device_or_by_what_sets_it_apart(
    theirs: dict[str, str], name: str, differences: str
) -> None:
    ours = {"device": "B", "torch": "2"}
    assert (machine_name(ours, theirs), told_apart(ours, theirs)) == (name, differences)
