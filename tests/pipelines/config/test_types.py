"""What certain arms ask for instead of the profile's own, and which parts each command has."""

from __future__ import annotations

from dataclasses import fields

import pytest

from perfsweep.fields import choices_of, range_of
from perfsweep.pipelines.config import types
from perfsweep.pipelines.config.types import ArmResources, ClusterConfig
from perfsweep.slurm.errors import ClusterError


def test_resources_of_certain_arms_are_fields_of_the_profile_with_the_same_range() -> None:
    profile = {one.name: one for one in fields(ClusterConfig)}
    for one in fields(ArmResources):
        if one.name != "levels":
            own = profile[one.name]
            assert (range_of(one), choices_of(one)) == (range_of(own), choices_of(own)), one.name


def test_only_what_is_said_of_certain_arms_is_different_for_them() -> None:
    assert ArmResources(levels={"amp": "bf16"}).asked == {}
    assert ArmResources(gpus=0, memory="").asked == {"gpus": 0, "memory": ""}


def test_the_rule_that_cannot_be_met_is_named_by_its_place() -> None:
    rules = [ArmResources(time_min=5), ArmResources(cpus_per_task=1, gpus=0), ArmResources(gpus=-1)]
    ClusterConfig(arm_resources=rules[:2]).check()
    with pytest.raises(ClusterError, match=r"^cluster\.arm_resources\[2\]: cluster\.gpus=-1 must be at le"):
        ClusterConfig(arm_resources=rules).check()


def test_each_command_has_the_parts_that_it_can_use() -> None:
    parts = {name: set(types.parts(name)) for name in types.COMMANDS}
    assert parts["tune"] - parts["sweep"] == {"tune"}
    assert parts["frontier"] - parts["sweep"] == {"frontier"}
    assert parts["run"] < parts["sweep"], "a sweep measures as a run does"
    assert all("workload" in own for name, own in parts.items() if name != "doctor")
    assert [name for name, own in parts.items() if "cluster" not in own] == ["run", "profile"]


def test_who_says_nothing_is_measured_for_real_and_keeps_results_of_a_whole_training() -> None:
    sweep, run = types.SweepCommand(workload={}), types.RunCommand(workload={})
    assert not sweep.dry_run and sweep.retry == []
    assert sweep.keep is run.keep is None, "and of none unless it is asked for"
    assert sweep.keep_iterations == run.keep_iterations == 0
    doctor = types.DoctorCommand()
    assert not (doctor.gpu or doctor.probe or doctor.stages), "neither takes a job unless it is asked for"
