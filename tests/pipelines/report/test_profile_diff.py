"""Where the time went between two arms."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from perfsweep.pipelines.report import profile_diff
from perfsweep.pipelines.report.profile_diff import differences, pairs, per, profiles_at
from perfsweep.pipelines.store.profiles import Cost, Kept, Profile, write_profile
from perfsweep.pipelines.store.records import Arm
from perfsweep.workloads.errors import ConfigError, RecordError


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


def test_times_are_per_unit_and_the_largest_change_comes_first() -> None:
    found = [(one.name, one.before_ns, one.after_ns) for one in differences(SLOW, FAST)]
    assert found == [
        ("mm", 100.0, 50.0),
        ("copy", 20.0, 6.0),
        ("only slow", 5.0, 0.0),
        ("only fast", 0.0, 0.5),
    ]


def test_where_a_side_finished_no_unit_times_are_per_iteration() -> None:
    unfinished = FAST.model_copy(update={"units": 0.0})
    assert per(SLOW, unfinished) == "iteration"
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


def test_the_table_adds_up_and_keeps_to_the_width_of_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    long = {f"aten::_a_kernel_{'of_many_words_' * 20}{number}": 10.0 for number in range(3)}
    long |= {
        f"aten::_a_rather_long_operator_name_that_no_terminal_has_room_for_{number}": 10.0
        for number in range(30)
    }
    profile_diff.show(Console(width=72), profile("a", long), profile("b", {**long, "mm [x]": 1000.0}), top=5)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 72
    assert "mm [x]" in out and "+500 ns" in out
    assert "and 29 more" in out
    assert "without the profiler an iteration takes 100 ns in A and 100 ns in B" in out


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


def test_profiles_of_different_workloads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one profile is of toy, the other of other"):
        pairs(kept(tmp_path, SLOW), kept(tmp_path, FAST.model_copy(update={"workload": "other"})), None)


def test_a_damaged_profile_is_named(tmp_path: Path) -> None:
    kept(tmp_path, SLOW)
    file = tmp_path / "slow/torch0/profile.json"
    file.write_text(file.read_text()[:50])
    with pytest.raises(RecordError, match=r"torch0/profile\.json is damaged"):
        profiles_at(str(tmp_path / "slow"))


def shown(top: int) -> list[str]:
    output = StringIO()
    profile_diff.show(Console(file=output, width=160), SLOW, FAST, top)
    return [" ".join(line.split()) for line in output.getvalue().strip().splitlines()]


def test_the_largest_changes_are_shown_with_what_all_add_up_to_set_apart() -> None:
    lines = shown(2)
    rows = lines[lines.index("operator or kernel A B B - A") :]
    assert " ".join(lines[: -len(rows)]).strip() == "torch: A is slow, B is fast; self time per example"
    assert rows[2:4] == ["mm 100 ns 50 ns -50 ns", "copy 20 ns 6 ns -14 ns"]
    assert rows[4] == ""
    assert rows[5] == "everything 125 ns 56.5 ns -68.5 ns"
    assert "and 2 more, together -4.5 ns" in lines
    assert lines[-1].startswith(
        "- without the profiler an iteration takes 100 ns in A and 50 ns in B (2.00x faster)"
    )


def test_where_all_are_shown_nothing_is_counted() -> None:
    assert not [line for line in shown(4) if line.startswith("and")]


def test_files_have_a_column_where_the_tool_tells_them_and_every_figure_stands_below_its_heading() -> None:
    def lines(tool: str) -> list[str]:
        output = StringIO()
        costs = (Cost(name="f", where="model.py:3", self_ns=1e6),)
        own = {"tool": tool, "costs": costs}
        profile_diff.show(Console(file=output, width=160), SLOW.model_copy(update=own), FAST, 1)
        found = [line.rstrip() for line in output.getvalue().splitlines() if line.strip()]
        (heading,) = [place for place, line in enumerate(found) if line.split()[-3:] == ["B", "-", "A"]]
        return found[heading : heading + 3]

    with_files, without = lines("pyinstrument"), lines("torch")
    assert with_files[0].split()[:2] == ["function", "where"] and with_files[2].split()[:2] == [
        "f",
        "model.py",
    ]
    assert without[2].split()[:2] == ["f", "500"]
    for heading, _, row in (with_files, without):
        assert len(heading) == len(row), "of the last column"
