"""What the kernel did for arms: faults and system time beside times, and a note where arms differ in them."""

from __future__ import annotations

from typing import Any

import pytest
from measured import change, compared, simulated

from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.config.types import DesignConfig


@pytest.fixture
def with_usage(command):
    """The comparison of a sweep whose second arm has other counts than its reference, in 10 iterations."""

    def run(reference: dict[str, Any], arm: dict[str, Any]) -> Comparison:
        sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 6})
        folder, manifest = simulated(sweep, lambda levels: 1.0)
        for one in manifest.arms:
            fields = arm if "single" in one.label else reference
            for record in folder.path.glob(f"trials/{one.id}/p*-r*/record.json"):
                change(record, **fields)
        return compared(folder, manifest)

    return run


def notes(comparison: Comparison) -> list[str]:
    return [note for note in comparison.notes if note.startswith(("minor faults", "system time"))]


def test_arms_that_fault_more_than_the_reference_are_named(with_usage) -> None:
    (note,) = notes(with_usage({"minor_faults": 20}, {"minor_faults": 2000}))
    assert note.startswith("minor faults an iteration: 2 of naive, 200 of work=single")


def test_ten_faults_an_iteration_make_no_note(with_usage) -> None:
    assert notes(with_usage({"minor_faults": 20}, {"minor_faults": 119})) == []


def test_system_time_that_differs_by_more_than_a_hundredth_of_an_arms_time_is_named(with_usage) -> None:
    (note,) = notes(with_usage({"system_ns": 0}, {"system_ns": 200_000_000}))
    assert note.startswith("system time: 0 % of naive's time, ") and note.endswith(" of work=single's")
    assert notes(with_usage({"system_ns": 0}, {"system_ns": 2_000_000})) == []


def test_arms_have_their_counts_an_iteration(with_usage) -> None:
    usage = {"minor_faults": 25, "major_faults": 5, "system_ns": 1000}
    arms = with_usage(usage, usage).arms
    assert [(arm.minor_faults, arm.major_faults, arm.system_ns) for arm in arms] == [(2.5, 0.5, 100.0)] * 2


def test_a_machine_that_was_slow_in_some_trials_is_told_from_slow_code(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 6})
    folder, manifest = simulated(sweep, lambda levels: 1.0)
    records = sorted(folder.path.glob("trials/*/p*-r*/record.json"))
    for number, record in enumerate(records):
        change(record, calibration_ns=25_000_000 if number == 0 else 20_000_000 + 1000 * number)
    (note,) = (note for note in compared(folder, manifest).notes if note.startswith("the calibration loop"))
    assert note.startswith("the calibration loop ran up to 25% slower before 1 of 12 timing trials")
