"""Legality of arms: completion, requirements, conflicts, conditional baselines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Baseline, Level, Numbers, Toggle
from perfsweep.workloads.errors import ConfigError

SOLVER = Toggle("solver", (Level("naive"), Level("newton")), "")
STOP = Toggle(
    "stop",
    (Level("seed", requires={"solver": ("naive",)}), Level("scaled")),
    "",
    baselines=(Baseline("scaled", given={"solver": ("newton",)}),),
)
LABELS = Toggle("labels", (Level("off"), Level("on", requires={"solver": ("newton",)})), "")
LAYOUT = Toggle("layout", (Level("off"), Level("on", requires={"labels": ("on",)})), "")
SLAB = Toggle("slab", (Level("all"), Level(8)), "", numbers=Numbers(1, 512))
PAD = Toggle("pad", (Level("off"), Level("on", conflicts={"slab": ("all",)})), "")
SPLIT = Toggle(
    "split",
    (Level("one"), Level("layers")),
    "",
    baselines=(Baseline("layers", device=lambda d: d.count > 1),),
)
TOGGLES = (SOLVER, STOP, LABELS, LAYOUT, SLAB, PAD, SPLIT)
ALL_LEVELS = [(toggle.name, level.value) for toggle in TOGGLES for level in toggle.levels]


@pytest.fixture
def space() -> Space:
    return Space(TOGGLES)


def test_a_literal_arm_names_the_levels_that_would_resolve_a_conflict(space: Space) -> None:
    with pytest.raises(ConfigError, match="pad=on conflicts with slab=all; choose slab from: 8"):
        space.legal({"pad": "on"})


def test_an_inherited_level_gives_way_to_what_was_asked(space: Space) -> None:
    onto = space.closure({"labels": "on"})
    arm = space.closure({"solver": "naive"}, onto=onto)
    assert (arm["solver"], arm["labels"]) == ("naive", "off")


def test_the_label_names_only_what_differs_from_the_baseline(space: Space) -> None:
    assert space.label(space.closure({"labels": "on"})) == "solver=newton,labels=on"
    assert space.label(space.complete({})) == "baseline"


@given(st.lists(st.sampled_from(ALL_LEVELS), max_size=4))
def test_closure_keeps_what_was_asked_and_is_legal_or_says_why(chosen: list[tuple[str, str | int]]) -> None:
    space, asked = Space(TOGGLES), dict(chosen)
    try:
        arm = space.closure(asked)
    except ConfigError as error:
        assert "no legal arm has" in str(error)
        return
    assert not space.problems(arm)
    assert asked.items() <= arm.items()


@given(st.lists(st.sampled_from(ALL_LEVELS), max_size=4), st.sampled_from([t.name for t in TOGGLES]))
def test_without_puts_the_toggle_at_its_baseline_and_adds_nothing(
    chosen: list[tuple[str, str | int]], name: str
) -> None:
    space = Space(TOGGLES)
    try:
        arm = space.closure(dict(chosen))
    except ConfigError:
        return
    without = space.without(arm, name)
    assert not space.problems(without)
    assert name not in space.choices(without)
    assert space.choices(without).items() <= space.choices(arm).items()


def test_one_of_several_ways_to_meet_a_requirement_is_enough_and_the_first_that_is_free_is_gone() -> None:
    a = Toggle("a", (Level("off"), Level("x")), "")
    b = Toggle("b", (Level("off"), Level("y"), Level("z")), "")
    need = Toggle("need", (Level("off"), Level("on", requires_any={"a": ("x",), "b": ("y", "z")})), "")
    space = Space((a, b, need))
    assert space.closure({"need": "on"}) == {"a": "x", "b": "off", "need": "on"}
    assert space.closure({"need": "on", "a": "off"}) == {"a": "off", "b": "y", "need": "on"}
    assert space.legal({"need": "on", "b": "z"})["a"] == "off"
    with pytest.raises(
        ConfigError, match=r"^these levels cannot go together: need=on requires a=x or b=y\|z$"
    ):
        space.legal({"need": "on"})
    with pytest.raises(
        ConfigError, match=r"^no legal arm has need=on, a=off, b=off: need=on requires a=x or"
    ):
        space.closure({"need": "on", "a": "off", "b": "off"})


def test_a_baseline_that_stands_in_the_way_gives_way_to_the_first_level_that_fits() -> None:
    fast = Toggle("fast", (Level("off"), Level("on")), "")
    off_only = {"requires": {"fast": ("off",)}}
    mode = Toggle("mode", (Level("plain", **off_only), Level("old", **off_only), Level("new")), "")
    assert Space((fast, mode)).closure({"fast": "on"}) == {"fast": "on", "mode": "new"}


def test_where_the_baseline_itself_cannot_be_measured_leaving_out_says_so() -> None:
    never = Level("off", refused=lambda config, levels: f"needs {config}")
    space = Space((Toggle("x", (never, Level("on")), ""), SLAB), config="memory")
    with pytest.raises(
        ConfigError, match=r"^no legal arm has x at its baseline: x=off is refused: needs mem"
    ):
        space.without(space.legal({"x": "on", "slab": 8}), "x")
