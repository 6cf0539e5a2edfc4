"""Profiles beside the arms of a report: what took most, what looking cost, and where files lie."""

from __future__ import annotations

from typing import Any

import pytest

from perfsweep.pipelines.report.profile_tables import LinkedProfile, linked_profiles
from perfsweep.pipelines.store.profiles import Cost, Profile, arm_folder, write_profile
from perfsweep.pipelines.store.records import Arm, SweepFolder

ARM = Arm(id="abc123", label="fuse=on", levels={"fuse": "on"})
TIMES = {"mm": 50.0, "add": 30.0, "copy": 15.0, "rest": 5.0}
COSTS = tuple(Cost(name=name, self_ns=ns) for name, ns in TIMES.items())
PROFILE = {"slice": "iterations 2:5", "iterations": 3, "units": 3.0, "bare_ns": (10.0,), "costs": COSTS}


def linked(sweep: SweepFolder, tool: str = "torch", **fields: Any) -> LinkedProfile:
    folder = arm_folder(sweep, ARM) / tool
    folder.mkdir(parents=True)
    values: dict[str, Any] = {**PROFILE, **fields}
    write_profile(folder, Profile(tool=tool, workload="toy", unit="row", arm=ARM, **values))
    (folder / "trace.json").write_text("")
    (found,) = linked_profiles(sweep)
    return found


@pytest.fixture
def sweep(tmp_path) -> SweepFolder:
    return SweepFolder(tmp_path)


def test_a_profile_names_the_three_lines_that_take_most_with_their_shares_of_all(sweep) -> None:
    found = linked(sweep, profiled_ns=(15.0,))
    assert (found.arm, found.what, found.cost) == ("fuse=on", "torch, iterations 2:5", "1.50x")
    assert found.most == "mm 50%; add 30%; copy 15%"
    assert found.files == (("trace.json", "profiles/fuse-on-abc123/torch/trace.json"),)


@pytest.mark.parametrize(
    ("tool", "fields", "most"),
    [
        ("memory", {"costs": (Cost(name="f", bytes=9.0),), "findings": ("peak 9 B", "more")}, "peak 9 B"),
        ("memory", {"costs": ()}, ""),
        ("dynamo", {"findings": ("one break", "more")}, "one break; mm 50 ns; add 30 ns; copy 15 ns"),
        ("torch", {"costs": (Cost(name="idle"), *COSTS[:1])}, "mm 100%"),
    ],
)
def test_where_lines_have_no_times_the_first_finding_stands_there(
    sweep, tool: str, fields: dict, most: str
) -> None:
    assert linked(sweep, tool, **fields).most == most


def test_what_looking_cost_is_left_open_where_nobody_knows(sweep) -> None:
    assert linked(sweep).cost == ""
