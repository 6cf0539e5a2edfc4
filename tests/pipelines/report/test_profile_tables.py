"""Profiles for people: on the terminal, next to the arms of a report, and between two arms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from perfsweep.pipelines.report.profile_tables import (
    differences,
    pairs,
    per,
    profiles_at,
    shorten,
    show,
    show_difference,
)
from perfsweep.pipelines.store.profiles import Cost, Kept, Profile, write_profile
from perfsweep.pipelines.store.records import Arm
from perfsweep.workloads.errors import ConfigError

ARM = Arm(id="abc", label="fuse=on", levels={"fuse": "on"})


def shown(
    tmp_path: Path, tool: str, costs: Sequence[Cost], top: int = 10, collapse: bool = True, **fields: object
) -> list[str]:
    """Printed lines, with one space where there are several."""
    values = {"slice": "iterations 2:5", "iterations": 2, "units": 8.0, "bare_ns": (10.0,), **fields}
    profile = Profile(tool=tool, workload="toy", unit="row", arm=ARM, costs=tuple(costs), **values)  # type: ignore[arg-type]
    output = StringIO()
    show(Console(file=output, width=200, markup=False), Kept(tmp_path, profile), top)
    lines = [" ".join(line.split()) if collapse else line for line in output.getvalue().splitlines()]
    return [line for line in lines if line.strip("─ ")]


MM = Cost(name="aten::mm", where="model.py:7", self_ns=6000.0, calls=4)
COPY = Cost(name="copy[0]", self_ns=2000.0, device_ns=4000.0, calls=1)


def rows(lines: list[str]) -> list[str]:
    return [line for line in lines[1:] if not line.startswith(("-", "and"))]


def test_times_are_those_of_an_iteration_and_shares_those_of_the_whole(tmp_path: Path) -> None:
    # Of copy the device's time counts: 6 us and 4 us are the whole.
    assert rows(shown(tmp_path, "torch", [MM, COPY])) == [
        "operator or kernel self per iteration on device share calls",
        "aten::mm 3 us 60% 2",
        "copy[0] 1 us 2 us 40% 0.5",
    ]


def test_a_roofline_has_work_traffic_and_their_rates_against_the_ceiling(tmp_path: Path) -> None:
    costs = [
        Cost(name="forward", self_ns=1e6, flops=4e6, bytes=1e6),
        Cost(name="idle", self_ns=1e6),
        Cost(name="copies", self_ns=5e5, bytes=1e6),
    ]
    facts = {"flops_per_s": 8e9, "bytes_per_s": 4e9}
    assert rows(shown(tmp_path, "roofline", costs, facts=facts)) == [
        "phase self per iteration MFLOP MB FLOP/B GFLOP/s GB/s",
        "forward 500 us 2 0.5 4 4 (50%) 1 (25%)",
        "idle 500 us 0 0",
        "copies 250 us 0 0.5 2 (50%)",
    ]
    (forward, *_) = rows(shown(tmp_path, "roofline", costs, facts={"flops_per_s": None}))[1:]
    assert forward == "forward 500 us 2 0.5 4 4 1", "no share where nobody knows the ceiling"


def test_memory_has_what_is_in_use_and_numbers_end_below_each_other(tmp_path: Path) -> None:
    costs = [Cost(name="forward", bytes=5e9, calls=30), Cost(name="unknown", calls=4)]
    lines = shown(tmp_path, "memory", costs, collapse=False)
    heading, *cells = [re.split("  +", line.strip()) for line in rows(lines) if "─" not in line]
    assert heading[-2:] == ["in use", "blocks"]
    assert cells == [["forward", "5,000.00 MB", "30"], ["unknown", "0.00 MB", "4"]]
    assert len({len(line.rstrip()) for line in rows(lines)[-2:]}) == 1


def test_the_rest_of_the_lines_is_counted_and_their_share_stays_that_of_all(tmp_path: Path) -> None:
    lines = shown(tmp_path, "torch", [MM, COPY, COPY], top=1)
    assert rows(lines)[1:] == ["aten::mm 3 us 43% 2"]
    assert f"and 2 more, in {tmp_path}/profile.json" in lines
    assert not [line for line in shown(tmp_path, "torch", [MM], top=1) if line.startswith("and")]


def test_below_stand_findings_what_it_cost_notes_and_files(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("")
    (tmp_path / "profile.json").write_text("")
    lines = shown(
        tmp_path, "torch", [], findings=("half is [copies]",), notes=("[short]",), profiled_ns=(15.0,)
    )
    assert lines == [
        lines[0],
        "- half is [copies]",
        "- 1.50x: 15 ns per iteration with torch, 10 ns without it (1 pair)",
        "- [short]",
        f"- files: {tmp_path}/ trace.json",
    ]
    assert lines[0].endswith("of fuse=on, iterations 2:5")


@pytest.mark.parametrize(
    ("text", "short"),
    [("a" * 60, "a" * 60), ("a" * 31 + "b" * 30, "a" * 30 + "..." + "b" * 30), ("x[0]", "x[0]")],
)
def test_long_names_keep_their_two_ends_and_brackets_are_no_markup(text: str, short: str) -> None:
    assert shorten(text) == short


def profile(label: str, costs: dict[str, float], **changes: Any) -> Profile:
    values: dict[str, Any] = {
        "tool": "torch",
        "workload": "toy",
        "unit": "example",
        "arm": Arm(id=label * 8, label=label, levels={}),
        "slice": "iterations 0:2",
        "iterations": 2,
        "units": 2.0,
        "bare_ns": (100.0,),
        "profiled_ns": (150.0,),
        "costs": tuple(Cost(name=name, self_ns=time_ns) for name, time_ns in costs.items()),
    }
    return Profile(**{**values, **changes})


SLOW = profile("slow", {"mm": 200.0, "copy": 40.0, "only slow": 10.0})
FAST = profile(
    "fast", {"mm": 400.0, "copy": 48.0, "only fast": 4.0}, iterations=4, units=8.0, bare_ns=(50.0,)
)


def test_where_a_side_finished_no_unit_times_are_per_iteration() -> None:
    unfinished = FAST.model_copy(update={"units": 0.0})
    assert [per(SLOW, unfinished), per(unfinished, SLOW), per(SLOW, FAST)] == ["iteration"] * 2 + ["example"]
    changed = {one.name: one.change_ns for one in differences(SLOW, unfinished)}
    assert changed == {"mm": 0.0, "copy": -8.0, "only slow": -5.0, "only fast": 1.0}


def test_a_function_is_the_same_where_only_its_line_moved() -> None:
    before, after = (
        profile(label, {}).model_copy(
            update={"costs": (Cost(name="f", where=f"model.py:{line}", self_ns=10.0),)}
        )
        for label, line in (("a", 3), ("b", 30))
    )
    (one,) = differences(before, after)
    assert (one.where, one.change_ns) == ("model.py", 0.0)


def kept(tmp_path: Path, *profiles: Profile) -> list[Kept]:
    for number, one in enumerate(profiles):
        folder = tmp_path / f"{one.arm.label}" / f"{one.tool}{number}"
        folder.mkdir(parents=True)
        write_profile(folder, one)
    return profiles_at(str(tmp_path / profiles[0].arm.label))


def test_profiles_of_the_same_tool_are_compared(tmp_path: Path) -> None:
    before = kept(tmp_path, SLOW, SLOW.model_copy(update={"tool": "roofline"}))
    after = kept(tmp_path, FAST, FAST.model_copy(update={"tool": "pyinstrument"}))
    assert pairs(before, after, None) == [(SLOW, FAST)]
    assert profiles_at(str(tmp_path / "slow/torch0"))[0].profile == SLOW


def test_two_arms_without_a_common_tool_are_refused(tmp_path: Path) -> None:
    before, after = kept(tmp_path, SLOW), kept(tmp_path, FAST.model_copy(update={"tool": "pyinstrument"}))
    with pytest.raises(ConfigError, match=r"here torch; there pyinstrument.*profile\.tool=torch"):
        pairs(before, after, None)


def test_arms_of_different_workloads_are_refused(tmp_path: Path) -> None:
    before, after = kept(tmp_path, SLOW), kept(tmp_path, FAST.model_copy(update={"workload": "other"}))
    with pytest.raises(ConfigError, match=r"one profile is of toy, the other of other: they share no op"):
        pairs(before, after, None)


def diff_shown(top: int) -> list[str]:
    output = StringIO()
    show_difference(Console(file=output, width=160, markup=False), SLOW, FAST, top)
    return [" ".join(line.split()) for line in output.getvalue().strip().splitlines()]


def test_the_largest_changes_are_shown_with_what_all_add_up_to_set_apart() -> None:
    lines = diff_shown(2)
    rows = lines[lines.index("operator or kernel A B B - A") :]
    assert " ".join(lines[: -len(rows)]).strip() == "torch: A is slow, B is fast; self time per example"
    assert rows[2:4] == ["mm 100 ns 50 ns -50 ns", "copy 20 ns 6 ns -14 ns"]
    assert rows[4] == ""
    assert rows[5] == "everything 125 ns 56.5 ns -68.5 ns"
    assert "and 2 more, together -4.5 ns" in lines
    assert lines[-1].startswith(
        "- without the profiler an iteration takes 100 ns in A and 50 ns in B (2.00x faster)"
    )
