"""What is kept of profile trials: a profile once it is whole, and otherwise why there is none."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from perfsweep.pipelines.config.types import MeasureConfig, ProfileConfig, SweepCommand, SweepConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.profiling.profile_trials import CHANGED, Ended, Profiling
from perfsweep.pipelines.store.profiles import Profile, kept_profiles, read_spec, write_profile
from perfsweep.pipelines.store.records import Manifest, Outcome, SweepFolder, TrialRecord
from perfsweep.pipelines.store.trial_files import write_record
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError

TOY = "toys.phased:Phased"


@pytest.fixture
def manifest() -> Manifest:
    command = SweepCommand(workload={"name": TOY}, measure=MeasureConfig(), sweep=SweepConfig(name="profile"))
    return plan.alone(plan.single_arm(command, Device()), command)


class Stated(Profiling):
    """Profiles of which each process leaves what is stated for its tool: a time without it, or an outcome."""

    def of(self, **stated: Any) -> Stated:
        self.stated, self.made = stated, []
        return self

    def _start(self, file: Path) -> list[Any]:
        spec, stated = read_spec(file), self.stated[read_spec(file).options.tool]
        self.made.append(spec.options.tool)
        outcome = stated if isinstance(stated, Outcome) else Outcome.OK
        if outcome is not Outcome.TIMEOUT:  # which leaves no record behind
            write_record(file.parent, TrialRecord.of(spec.trial, 0.0, outcome=outcome))
        if outcome is Outcome.OK:
            facts = {"workload": TOY, "unit": "step", "arm": spec.trial.arm, "iterations": 1, "units": 1.0}
            profile = Profile(tool=spec.options.tool, slice="step", bare_ns=stated, notes=("own",), **facts)
            write_profile(file.parent, profile)
        return []


@pytest.fixture
def stated(tmp_path: Path, manifest: Manifest) -> Stated:
    return Stated(SweepFolder(tmp_path), manifest, manifest.arms[0])


def one(profiling: Stated) -> Ended:
    return profiling.run(ProfileConfig(tool="torch"))


def test_a_whole_profile_takes_the_place_of_the_one_before_and_a_failed_one_does_not(stated: Stated) -> None:
    for bare_ns in ((1.0,), (2.0,)):
        ended = one(stated.of(torch=bare_ns))
        assert ended.kept is not None and stated.made == ["torch"]
        assert (ended.kept.profile.bare_ns, ended.kept.profile.notes) == (bare_ns, ("own",))
        assert (ended.outcome, ended.folder.name) == (Outcome.OK, ended.options.folder_name)
        assert [kept.folder for kept in kept_profiles(stated.folder)] == [ended.folder]
    for outcome, told in ((Outcome.OOM, Outcome.OOM), (Outcome.TIMEOUT, Outcome.FAILED)):
        failed = one(stated.of(torch=outcome))
        assert (failed.kept, failed.outcome) == (None, told), "without a record it is a failure"
    (kept,) = kept_profiles(stated.folder)
    assert kept.profile.bare_ns == (2.0,)


def test_where_a_process_cannot_do_without_its_tool_another_one_does(stated: Stated) -> None:
    ended = one(stated.of(torch=(), bare=(3.0,)))
    assert ended.kept is not None and stated.made == ["torch", "bare"]
    assert (ended.kept.profile.tool, ended.kept.profile.bare_ns) == ("torch", (3.0,))
    assert [folder.name for folder in ended.folder.parent.iterdir()] == [ended.folder.name]
    failed = one(stated.of(torch=(), bare=Outcome.OOM))
    assert (failed.kept, failed.outcome) == (None, Outcome.OOM)


def test_code_that_changed_since_the_sweep_is_noted_before_all_else(stated: Stated) -> None:
    changed = stated.manifest.sweep.model_copy(update={"code": "other"})
    stated.manifest = stated.manifest.model_copy(update={"sweep": changed})
    ended = one(stated.of(torch=(1.0,)))
    assert ended.kept is not None and ended.kept.profile.notes == (CHANGED, "own")


def test_an_arm_of_another_version_is_not_profiled(tmp_path: Path, manifest: Manifest) -> None:
    arm = dataclasses.replace(manifest.arms[0], version="x")
    with pytest.raises(ConfigError, match="baseline: arms of a sweep with versions are not profiled; check"):
        Profiling(SweepFolder(tmp_path), manifest, arm)
