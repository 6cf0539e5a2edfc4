"""Profiles in the folder of a sweep: names, what is whole, and what profiling cost in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from planned_sweeps import FAST, NAIVE, arm, manifest

from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import (
    Cost,
    Profile,
    ProfileSpec,
    arm_folder,
    kept_profiles,
    overhead_text,
    read_profile,
    read_spec,
    write_profile,
    write_spec,
)
from perfsweep.pipelines.store.records import Kind, SweepFolder
from perfsweep.workloads.errors import RecordError


def profile(**own: Any) -> Profile:
    given = {"tool": "torch", "workload": "toys", "unit": "rows", "arm": arm(FAST), "slice": "3:5"}
    return Profile(**{**given, "iterations": 4, "units": 8.0, "bare_ns": (1e6, 3e6, 2e6), **own})


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("naive", "naive-bbbbbb"),
        ("amp=bf16, a/b", "amp-bf16-a-b-bbbbbb"),
        ("v1.2_x", "v1.2_x-bbbbbb"),
        ("n" * 99, "n" * 60 + "-bbbbbb"),
    ],
)
def test_a_folder_has_the_label_as_far_as_addresses_take_it(tmp_path: Path, label: str, name: str) -> None:
    assert arm_folder(SweepFolder(tmp_path), arm(FAST, label)) == tmp_path / "profiles" / name


@pytest.mark.parametrize(
    ("own", "total"), [({"self_ns": 3.0}, 3.0), ({"self_ns": 3.0, "device_ns": 2.0}, 2.0), ({}, 0.0)]
)
def test_a_cost_is_the_devices_where_it_has_any(own: dict, total: float) -> None:
    assert Cost(name="mm", **own).total_ns == total


@pytest.mark.parametrize(("variant", "title"), [("", "torch"), ("with stacks", "torch, with stacks")])
def test_a_title_is_the_tool_and_its_circumstances(variant: str, title: str) -> None:
    assert profile(variant=variant).title == title


@pytest.mark.parametrize(
    ("profiled", "overhead", "text"),
    [
        ((), None, "its cost is not known: no repetition had both sides"),
        ((2e6,), 2.0, "2.00x: 2 ms per iteration with torch, 2 ms without it (1 pair)"),
        ((2e6, 3e6), 1.5, "1.50x: 2.5 ms per iteration with torch, 2 ms without it (2 pairs)"),
        ((2e6, 3e6, 8e6), 2.0, "2.00x: 3 ms per iteration with torch, 2 ms without it (3 pairs)"),
    ],
)
def test_what_profiling_cost_is_the_median_of_pairs(
    profiled: tuple, overhead: float | None, text: str
) -> None:
    found = profile(profiled_ns=profiled)
    assert found.overhead == overhead
    assert overhead_text(found) == text


def test_a_profile_reads_back_with_the_files_that_its_tool_wrote(tmp_path: Path) -> None:
    write_profile(tmp_path, profile(costs=(Cost(name="mm", flops=2.0),)))
    for name in ("spec.json", "record.json", "status.json", "log.txt", "debug.log", "trace.json", "a.txt"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    kept = read_profile(tmp_path)
    assert kept.profile == profile(costs=(Cost(name="mm", flops=2.0),))
    assert kept.files == [tmp_path / "a.txt", tmp_path / "trace.json"]


def test_a_specification_reads_back(tmp_path: Path) -> None:
    plan = manifest()
    trial = plan.sweep.trial_spec(plan.arm(NAIVE), Kind.PROFILE, "p000", tmp_path)
    spec = ProfileSpec(trial=trial, options=ProfileConfig(tool="memory"))
    assert read_spec(write_spec(tmp_path / "new", spec)) == spec


@pytest.mark.parametrize("read", [read_profile, lambda folder: read_spec(folder / "profile.json")])
def test_what_is_missing_or_damaged_is_to_be_profiled_again(tmp_path: Path, read: Any) -> None:
    with pytest.raises(RecordError, match=r"profile\.json does not exist; profile the arm again"):
        read(tmp_path)
    (tmp_path / "profile.json").write_text("{")
    with pytest.raises(RecordError, match=r"profile\.json is damaged: .*; profile the arm again"):
        read(tmp_path)


def test_whole_profiles_are_listed_by_arm_and_tool_and_others_are_named(tmp_path: Path) -> None:
    folder, problems = SweepFolder(tmp_path), list[str]()
    assert kept_profiles(folder) == []
    for place in ("b/torch", "a/torch", "a/memory", "a/roofline.unfinished", "c/torch"):
        (folder.profiles_dir / place).mkdir(parents=True)
        write_profile(folder.profiles_dir / place, profile())
    (folder.profiles_dir / "c/torch/profile.json").write_text("{")
    found = [str(kept.folder.relative_to(folder.profiles_dir)) for kept in kept_profiles(folder, problems)]
    assert found == ["a/memory", "a/torch", "b/torch"]
    assert len(problems) == 1 and str(folder.profiles_dir / "c/torch/profile.json") in problems[0]
    assert len(kept_profiles(folder)) == 3
