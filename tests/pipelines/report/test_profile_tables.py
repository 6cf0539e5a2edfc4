"""Profiles on the terminal: what each tool's lines show, and what is said below them."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from perfsweep.pipelines.report.profile_tables import shorten, show
from perfsweep.pipelines.store.profiles import Cost, Kept, Profile
from perfsweep.pipelines.store.records import Arm

ARM = Arm(id="abc", label="fuse=on", levels={"fuse": "on"})


def shown(tmp_path: Path, tool: str, costs: Sequence[Cost], top: int = 10, **fields: object) -> list[str]:
    """Printed lines, with one space where there are several."""
    values = {"slice": "iterations 2:5", "iterations": 2, "units": 8.0, "bare_ns": (10.0,), **fields}
    profile = Profile(tool=tool, workload="toy", unit="row", arm=ARM, costs=tuple(costs), **values)  # type: ignore[arg-type]
    output = StringIO()
    show(Console(file=output, width=200), Kept(tmp_path, profile), top)
    lines = [" ".join(line.split()) for line in output.getvalue().splitlines()]
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


def test_without_times_on_a_device_and_without_calls_there_are_no_columns_for_them(tmp_path: Path) -> None:
    costs = [Cost(name="f", where="a.py:1", self_ns=3000.0), Cost(name="g", where="b.py:2", self_ns=1000.0)]
    assert rows(shown(tmp_path, "pyinstrument", costs)) == [
        "function where self per iteration share",
        "f a.py:1 1.5 us 75%",
        "g b.py:2 500 ns 25%",
    ]


def test_memory_is_shown_as_it_is_held_not_by_the_iteration(tmp_path: Path) -> None:
    held = Cost(name="f", where="a.py:1", bytes=3 * 10**6, calls=4)
    assert rows(shown(tmp_path, "memory", [held])) == [
        "asked for by where in use blocks",
        "f a.py:1 3.00 MB 4",
    ]


def test_compiling_is_shown_by_frame(tmp_path: Path) -> None:
    frame = Cost(name="step", where="a.py:1", self_ns=2e9, calls=41)
    assert rows(shown(tmp_path, "dynamo", [frame])) == [
        "compiled frame where compiling operators",
        "step a.py:1 2 s 41",
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


def test_the_rest_of_the_lines_is_counted_and_their_share_stays_that_of_all(tmp_path: Path) -> None:
    lines = shown(tmp_path, "torch", [MM, COPY, COPY], top=1)
    assert rows(lines)[1:] == ["aten::mm 3 us 43% 2"]
    assert f"and 2 more, in {tmp_path}/profile.json" in lines
    assert not [line for line in shown(tmp_path, "torch", [MM], top=1) if line.startswith("and")]


def test_below_stand_findings_what_it_cost_notes_and_files(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("")
    (tmp_path / "profile.json").write_text("")
    lines = shown(
        tmp_path, "torch", [], findings=("half is [copies]",), notes=("short",), profiled_ns=(15.0,)
    )
    assert lines == [
        lines[0],
        "- half is [copies]",
        "- 1.50x: 15 ns per iteration with torch, 10 ns without it (1 pair)",
        "- short",
        f"- files: {tmp_path}/ trace.json",
    ]
    assert lines[0].endswith("of fuse=on, iterations 2:5")


def test_without_files_of_the_tool_its_profile_is_named(tmp_path: Path) -> None:
    assert shown(tmp_path, "torch", [MM])[-1] == f"- files: {tmp_path}/ profile.json"


@pytest.mark.parametrize(
    ("text", "short"),
    [("a" * 60, "a" * 60), ("a" * 31 + "b" * 30, "a" * 30 + "..." + "b" * 30), ("x[0]", r"x\[0]")],
)
def test_long_names_keep_their_two_ends_and_brackets_are_no_markup(text: str, short: str) -> None:
    assert shorten(text) == short


def test_on_a_narrow_terminal_names_go_on_in_the_next_line(tmp_path: Path) -> None:
    profile = Profile(
        tool="pyinstrument",
        workload="toy",
        unit="row",
        arm=ARM,
        slice="job",
        iterations=1,
        units=1.0,
        bare_ns=(10.0,),
        costs=(Cost(name="name" * 12, where="file" * 12, self_ns=1000.0),),
    )
    output = StringIO()
    show(Console(file=output, width=70), Kept(tmp_path, profile), 1)
    letters = "".join(output.getvalue().split())
    assert "\N{HORIZONTAL ELLIPSIS}" not in letters
    rows = output.getvalue().partition("─")[2].partition("\n- ")[0]
    assert sum(map(rows.count, "nm")) == 24 and sum(map(rows.count, "fl")) == 24
