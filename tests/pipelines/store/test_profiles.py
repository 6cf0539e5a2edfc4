"""Profiles in the folder of a sweep: names, what is whole, and memory along a slice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planned_sweeps import FAST, arm

from perfsweep.pipelines.store.profiles import (
    MemoryCourse,
    Profile,
    arm_folder,
    kept_profiles,
    read_profile,
    read_spec,
    write_profile,
)
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.workloads.errors import RecordError


def profile(**own: Any) -> Profile:
    given = {"tool": "torch", "workload": "toys", "unit": "rows", "arm": arm(FAST), "slice": "3:5"}
    return Profile(**{**given, "iterations": 4, "units": 8.0, "bare_ns": (1e6,), **own})


@pytest.mark.parametrize(
    ("label", "name"), [("amp=bf16, a/b", "amp-bf16-a-b-bbbbbb"), ("n" * 99, "n" * 60 + "-bbbbbb")]
)
def test_a_folder_has_the_label_as_far_as_addresses_take_it(tmp_path: Path, label: str, name: str) -> None:
    assert arm_folder(SweepFolder(tmp_path), arm(FAST, label)) == tmp_path / "profiles" / name


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


COURSE = MemoryCourse(
    allocated_ns=np.array([0, 10, 20, 30, 40]),
    allocated_bytes=np.array([5, 9, 3, 7, 1]),
    sampled_ns=np.array([0, 40]),
    reserved_bytes=np.array([0, 16]),
    host_bytes=np.array([100, 120]),
    iteration_ns=np.array([40]),
    phase_names=np.array(["data", "forward", "data", "update"]),
    phase_start_ns=np.array([15, 20, 31, 45]),
    phase_end_ns=np.array([19, 30, 39, 50]),
)


def test_a_phase_holds_what_was_held_when_it_began_and_the_highest_comes_first() -> None:
    assert list(COURSE.phase_peaks().items()) == [("data", 9), ("forward", 7), ("update", 1)]


def test_the_peak_is_the_first_time_that_most_was_held() -> None:
    assert COURSE.peak_at() == (9, 10)
    nothing = replace(COURSE, allocated_ns=np.array([]), allocated_bytes=np.array([]))
    assert nothing.peak_at() == (0, 0)
