"""What measure.stall and measure.target ask of a plan."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan.plan import make_plan
from perfsweep.pipelines.store.records import IDEAL_LOADER, Manifest
from perfsweep.pipelines.store.trainings import trained_arms
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError

ONE = DesignConfig("one_at_a_time", levels={"zero_grad": ["none"]})


def planned(command: Callable, **measure: object) -> Manifest:
    return make_plan(command(ONE, workload="digits", measure=measure), Device())


def test_stall_adds_the_reference_on_batches_from_memory_and_leaves_the_other_arms_as_they_are(
    command: Callable,
) -> None:
    without, manifest = planned(command), planned(command, stall=True)
    assert [one.id for one in manifest.arms[: len(without.arms)]] == [one.id for one in without.arms]
    (effect,) = [one for one in manifest.effects if one.design == IDEAL_LOADER]
    ((arm, base),) = effect.pairs
    assert base == manifest.sweep.references["naive"]
    assert manifest.arm(arm).levels == {**manifest.arm(base).levels, "data": "cached"}
    assert manifest.arm(arm).label == "data=cached" and arm in manifest.packs[0].arms


def test_a_workload_without_a_loader_says_so_and_the_sweep_goes_on(command: Callable) -> None:
    manifest = make_plan(
        command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"stall": True}), Device()
    )
    (row,) = manifest.refused
    assert row.reason == "measure.stall: Spinner has no loader whose batches could be kept"
    assert len(manifest.arms) == 2


def test_arms_to_choose_from_are_trained_to_the_target_and_no_others(command: Callable) -> None:
    manifest = planned(command, target=0.9, stall=True, placebo=1)
    (chosen,) = [one for one in manifest.effects if one.design == "one_at_a_time"]
    assert set(trained_arms(manifest)) == set(chosen.pairs[0])


def test_a_job_has_no_target(command: Callable) -> None:
    jobs = command(DesignConfig("one_at_a_time"), workload="toys.jobs:Countdown", measure={"target": 1.0})
    with pytest.raises(ConfigError, match=r"measure\.target=1: Countdown is a job"):
        make_plan(jobs, Device())


def test_a_target_needs_room_for_its_looks(command: Callable) -> None:
    with pytest.raises(ConfigError, match=r"measure\.target_steps=20 leaves no room for 3 looks"):
        planned(command, target=0.9, target_steps=20, target_every=10, target_looks=3)
