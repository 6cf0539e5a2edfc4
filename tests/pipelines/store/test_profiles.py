"""Profiles in the folder of a sweep: names, what is whole, what profiling cost, and memory along a slice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planned_sweeps import FAST, arm

from perfsweep.pipelines.store.profiles import (
    Cost,
    MemoryCourse,
    Profile,
    arm_folder,
    kept_profiles,
    overhead_text,
    read_course,
    read_profile,
    read_spec,
    write_course,
    write_profile,
)
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.workloads.errors import RecordError


def profile(**own: Any) -> Profile:
    given = {"tool": "torch", "workload": "toys", "unit": "rows", "arm": arm(FAST), "slice": "3:5"}
    return Profile(**{**given, "iterations": 4, "units": 8.0, "bare_ns": (1e6, 3e6, 2e6), **own})


@pytest.mark.parametrize(
    ("label", "name"), [("amp=bf16, a/b", "amp-bf16-a-b-bbbbbb"), ("n" * 99, "n" * 60 + "-bbbbbb")]
)
def test_a_folder_has_the_label_as_far_as_addresses_take_it(tmp_path: Path, label: str, name: str) -> None:
    assert arm_folder(SweepFolder(tmp_path), arm(FAST, label)) == tmp_path / "profiles" / name


@pytest.mark.parametrize(
    ("profiled", "overhead", "text"),
    [
        ((), None, "its cost is not known: no repetition had both sides"),
        ((2e6,), 2.0, "2.00x: 2 ms per iteration with torch, 2 ms without it (1 pair)"),
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


def test_it_reads_back_as_it_was_written(tmp_path: Path) -> None:
    assert read_course(tmp_path) is None
    write_course(tmp_path, COURSE)
    found = read_course(tmp_path)
    assert found is not None
    assert all(np.array_equal(value, getattr(found, name)) for name, value in vars(COURSE).items())
