"""What `perfsweep frontier` climbs, and its answer in words."""

from __future__ import annotations

import math
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from perfsweep.pipelines.commands import frontier
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.search.factors import ladder_factor
from perfsweep.pipelines.search.ladders import LadderResult, MemoryModel, SizeResult
from perfsweep.workloads.api import Level, Numbers, Toggle
from perfsweep.workloads.errors import ConfigError

MB = 10**6


def ladder(name: str, **levels: Any) -> Toggle:
    return Toggle(name, (Level(1, **levels), Level(2), Level(4), Level(8)), "sizes", numbers=Numbers(1))


SWITCH = Toggle("amp", (Level("off"), Level("on")), "a switch")


@pytest.mark.parametrize(
    ("toggles", "name", "found"),
    [([SWITCH, ladder("slab")], None, "slab"), ([SWITCH, ladder("slab"), ladder("batch")], "batch", "batch")],
)
def test_the_ladder_is_the_one_that_is_named_or_the_only_one(toggles: list, name, found: str) -> None:
    assert frontier.chosen({one.name: one for one in toggles}, name).name == found


@pytest.mark.parametrize(
    ("toggles", "name", "says"),
    [
        (
            [ladder("slab"), ladder("batch")],
            None,
            "says which ladder to climb; this workload has: slab, batch",
        ),
        ([SWITCH], None, "this workload has: none"),
        ([SWITCH, ladder("slab")], "slob", "frontier.toggle=slob is unknown; the ladders .* are: slab"),
    ],
)
def test_another_choice_is_refused_with_those_that_there_are(toggles: list, name, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        frontier.chosen({one.name: one for one in toggles}, name)


def size(number: int, ratio: float | None = None, **own: Any) -> SizeResult:
    return SizeResult(number, None if ratio is None else math.log(ratio), **{"error": 0.01, **own})


def result(*measured: SizeResult, **own: Any) -> LadderResult:
    ran = [one for one in measured if one.ran]
    fastest = min(ran, key=lambda one: one.log_time or 0.0, default=None)
    given = {"cliff": None, "largest": ran[-1] if ran else None, "sure": True, "memory": None, "budget": None}
    return LadderResult(measured, fastest, **{**given, **own})


def test_the_answer_names_the_fastest_and_the_largest_size() -> None:
    found = result(size(1, 1.0), size(2, 0.8, error=0.02), size(4, 0.9))
    assert frontier.lines("slab", found) == [
        "fastest: slab=2, 1.25x faster (+-4.0%) against slab=1",
        "largest that fits: slab=4, where the ladder ends",
        "3 sizes measured",
    ]


def test_a_cliff_is_the_change_between_its_two_sizes() -> None:
    one, other = size(2, 0.8), size(4, 1.0)
    found = frontier.lines("slab", result(size(1, 1.0), one, other, cliff=(one, other)))
    assert found[1] == "cliff: a unit at 4 is 1.25x slower than at 2"


@pytest.mark.parametrize(
    ("measured", "own", "beyond"),
    [
        ((size(1, 1.0), size(2, reason="CUDA out of memory")), {}, "; 2 does not run: CUDA out of memory"),
        (
            (size(1, 1.0),),
            {"skipped": {8: 5.0 * 2**30, 4: 2.5 * 2**30}, "budget": 2**31},
            "; 4 is predicted to need 2.50 of 2.00 GiB and was not tried",
        ),
        ((size(1, 1.0),), {"sure": False}, "; larger sizes were not tried: raise frontier.measurements"),
        ((size(1, 1.0),), {}, ", where the ladder ends"),
    ],
    ids=["it does not run", "it is predicted not to", "nobody knows", "there is none"],
)
def test_why_nothing_larger_is_told(measured: tuple, own: dict, beyond: str) -> None:
    assert f"largest that fits: slab=1{beyond}" in frontier.lines("slab", result(*measured, **own))


@pytest.mark.parametrize(("each", "told"), [(2.5 * MB, True), (0.0, False), (-1.0, False)])
def test_memory_of_each_is_told_where_it_grows(each: float, told: bool) -> None:
    found = frontier.lines("slab", result(size(1, 1.0), memory=MemoryModel(100.0 * MB, each)))
    assert ("peak memory: 100 MB + 2.5 MB for each" in found) is told


def test_where_no_size_runs_each_has_its_reason() -> None:
    found = result(size(1, reason="no memory"), size(2, reason="no kernel"))
    assert frontier.lines("slab", found) == ["no size of slab runs: 1: no memory; 2: no kernel"]


@pytest.mark.parametrize(("limit", "told"), [(3 * 2**29, "memory: 1.50 GiB"), (None, "memory: not known")])
def test_sizes_memory_and_levels_beside_them_are_told_beforehand(limit: int | None, told: str) -> None:
    out = StringIO()
    sweep: Any = SimpleNamespace(
        manifest=SimpleNamespace(sweep=SimpleNamespace(name="mine")),
        folder=SimpleNamespace(path="runs/mine"),
        reference=SimpleNamespace(label="amp=bf16"),
    )
    frontier._show(Console(file=out, width=100), sweep, ladder_factor("slab", [1, 2, 4, 8], 1), limit)
    text = out.getvalue()
    assert f"{told}; next to it amp=bf16" in text and "mine: slab in 1, 2, 4, 8" in text
    assert "records: runs/mine" in text


@pytest.mark.parametrize(("ratio", "status"), [(1.0, 0), (None, 1)])
def test_the_table_has_measured_and_predicted_sizes(ratio: float | None, status: int) -> None:
    out = StringIO()
    measured = size(1, ratio, peak_bytes=300 * MB, reason="" if ratio else "no memory")
    sweep: Any = SimpleNamespace(folder=SimpleNamespace(report_file="report.html"))
    found = result(measured, size(2, 1.5), skipped={8: 5000.0 * MB}) if ratio else result(measured)
    assert frontier.report(Console(file=out, width=100), "slab", found, sweep) == status
    text = " ".join(out.getvalue().split())
    assert "300 MB" in text and text.endswith("report: report.html")
    assert all(f"- {line}" in text for line in frontier.lines("slab", found))
    if ratio:
        assert "2 1.50x slower (+-2.0%)" in text and "8 5000 MB predicted, not tried" in text
    else:
        assert "1 300 MB no memory" in text


def fewer(toggle: Toggle) -> Any:
    """The sizes that may stand beside the other toggles, each needing what its level says."""
    space = Space((toggle, SWITCH))
    sweep: Any = SimpleNamespace(
        space=space, reference=SimpleNamespace(levels=space.complete({}), label="naive")
    )
    return frontier._legal(sweep, ladder_factor(toggle.name, [1, 2, 4, 8], 1))


def test_sizes_that_no_legal_arm_has_are_not_climbed() -> None:
    two = Level(2, conflicts={"amp": ("off", "on")})
    found = fewer(Toggle("slab", (Level(1), two, Level(4), Level(8)), "sizes"))
    assert (found.values, found.sizes, found.start) == ((1, 4, 8), (0.0, 2.0, 3.0), 0)


def test_a_ladder_of_one_legal_size_is_none() -> None:
    never: Any = {"conflicts": {"amp": ("off", "on")}}
    toggle = Toggle("slab", (Level(1), *(Level(n, **never) for n in (2, 4, 8))), "sizes")
    with pytest.raises(ConfigError, match="slab has fewer than two sizes that go with naive"):
        fewer(toggle)
