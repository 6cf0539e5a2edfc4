"""Tools by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines.profiling import tool as profiling
from perfsweep.pipelines.profiling.tool import Tool
from perfsweep.pipelines.store.options import ProfileConfig


@pytest.mark.parametrize("name", profiling.NAMES)
def test_a_tool_is_made_by_its_name(name: str, tmp_path: Path) -> None:
    made = profiling.make(ProfileConfig(tool=name), tmp_path)
    assert type(made).__name__.lower() in {name, "tracing", "sampling"}
    assert type(made) is not Tool and made.folder == tmp_path


def test_no_tool_at_all_is_one_that_sees_nothing(tmp_path: Path) -> None:
    assert type(profiling.make(ProfileConfig(tool="bare"), tmp_path)) is Tool


@pytest.mark.parametrize(
    ("tool", "slice_", "missing", "says"),
    [
        ("roofline", "first", False, "profile.slice=first has no roofline"),
        ("roofline", "step", False, None),
        ("torch", "first", True, None),
        ("pyinstrument", "first", False, None),
        ("pyinstrument", "step", True, "needs the package pyinstrument"),
    ],
)
def test_a_tool_is_refused_where_it_can_show_nothing(
    tool: str, slice_: str, missing: bool, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "find_spec", lambda name: None if missing else name)
    reason = profiling.refusal(tool, slice_)
    assert reason is None if says is None else reason is not None and says in reason
