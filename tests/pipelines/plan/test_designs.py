"""Designs turn levels into pairs of arms: what is measured against what."""

from __future__ import annotations

import pytest

from pipelines.plan import designs
from pipelines.plan.arms import Space
from workloads.api import Level, Numbers, Toggle
from workloads.errors import ConfigError

TOGGLES = (
    Toggle(
        "amp",
        (
            Level("off"),
            Level("bf16"),
            Level("fp16", refused=lambda config, levels: "the data is 16 bit already"),
        ),
        "",
    ),
    Toggle("pin", (Level("off"), Level("on")), ""),
    Toggle("copy", (Level("wait"), Level("async", requires={"pin": ("on",)})), ""),
    Toggle("slab", (Level(8), Level("all")), "", numbers=Numbers(1)),
)


@pytest.fixture
def space() -> Space:
    return Space(TOGGLES)


@pytest.fixture
def naive(space: Space) -> dict:
    return space.complete({})


def pairs(space: Space, design: designs.Design) -> list[tuple[str, str]]:
    """(arm, base) labels of every effect."""
    return [(space.label(arm), space.label(base)) for effect in design.effects for arm, base in effect.pairs]


def test_each_level_alone_is_measured_against_the_arm_without_it(space: Space, naive: dict) -> None:
    found = pairs(space, designs.one_at_a_time(space, naive))
    assert found == [
        ("amp=bf16", "baseline"),
        ("pin=on", "baseline"),
        ("pin=on,copy=async", "pin=on"),
        ("slab=all", "baseline"),
    ]


def test_a_level_that_a_wide_design_cannot_have_is_left_out_with_its_reason(
    space: Space, naive: dict
) -> None:
    (refused,) = designs.one_at_a_time(space, naive).refused
    assert (refused.toggle, refused.level) == ("amp", "fp16")
    assert "16 bit already" in refused.reason


def test_a_level_asked_for_by_name_is_refused_loudly(space: Space, naive: dict) -> None:
    with pytest.raises(ConfigError, match="16 bit already"):
        designs.one_at_a_time(space, naive, {"amp": ["fp16"]})


def test_axes_restrict_toggles_and_levels(space: Space, naive: dict) -> None:
    found = pairs(space, designs.one_at_a_time(space, naive, {"slab": [16, "all"], "pin": []}))
    assert found == [("slab=16", "baseline"), ("slab=all", "baseline"), ("pin=on", "baseline")]


def test_leaving_one_out_takes_dependent_levels_along_and_says_so(space: Space) -> None:
    design = designs.leave_one_out(space, {"amp": "bf16", "copy": "async"})
    assert pairs(space, design) == [
        ("amp=bf16,pin=on,copy=async", "pin=on,copy=async"),
        ("amp=bf16,pin=on,copy=async", "amp=bf16"),
        ("amp=bf16,pin=on,copy=async", "amp=bf16,pin=on"),
    ]
    assert [effect.also for effect in design.effects] == [(), ("copy",), ()]


def test_leave_one_out_needs_something_to_leave_out(space: Space) -> None:
    with pytest.raises(ConfigError, match="leave_one_out needs `best`"):
        designs.leave_one_out(space, {})


def test_a_chain_adds_step_by_step_and_closes_with_the_whole(space: Space, naive: dict) -> None:
    design = designs.chain(space, naive, "naive", [{"pin": "on"}, {"copy": "async"}, {"slab": 32}])
    assert pairs(space, design) == [
        ("pin=on", "baseline"),
        ("pin=on,copy=async", "pin=on"),
        ("pin=on,copy=async,slab=32", "pin=on,copy=async"),
        ("pin=on,copy=async,slab=32", "baseline"),
    ]
    assert design.effects[-1].reference == "naive"


def test_a_ladder_climbs_numbers_in_order_whatever_order_they_came_in(space: Space, naive: dict) -> None:
    design = designs.ladder(space, naive, {"slab": [64, 16, "all", 32, 8]})
    assert [effect.level for effect in design.effects] == ["16", "32", "64", "all"]


def test_a_ladder_climbs_one_toggle(space: Space, naive: dict) -> None:
    with pytest.raises(ConfigError, match="ladder climbs one toggle, and 2 are given"):
        designs.ladder(space, naive, {"slab": [1], "pin": ["on"]})


def test_a_factorial_main_effect_averages_over_the_other_toggles(space: Space, naive: dict) -> None:
    design = designs.factorial(space, naive, {"amp": ["bf16"], "pin": ["off", "on"], "slab": [8, 16]})
    mains = [effect for effect in design.effects if not effect.contrast]
    assert [(effect.toggle, len(effect.pairs)) for effect in mains] == [("amp", 4), ("pin", 4), ("slab", 4)]
    assert [effect.toggle for effect in design.effects[3:]] == ["amp x pin", "amp x slab", "pin x slab"]
    arm, base = design.effects[0].pairs[-1]
    assert (space.label(arm), space.label(base)) == ("amp=bf16,pin=on,slab=16", "pin=on,slab=16")


def test_a_factorial_leaves_out_illegal_combinations_with_their_pairs(space: Space, naive: dict) -> None:
    design = designs.factorial(space, naive, {"pin": ["off", "on"], "copy": ["wait", "async"]})
    assert [refusal.toggle for refusal in design.refused] == ["pin+copy", "interactions"]
    assert {effect.toggle: len(effect.pairs) for effect in design.effects} == {"pin": 1, "copy": 1}


def test_listed_arms_are_measured_against_every_reference(space: Space, naive: dict) -> None:
    references = {"naive": naive, "pinned": space.complete({"pin": "on"})}
    design = designs.named_arms(space, {"fast": {"amp": "bf16", "copy": "async"}}, references)
    assert [effect.reference for effect in design.effects] == ["naive", "pinned"]
    assert pairs(space, design)[1] == ("amp=bf16,pin=on,copy=async", "pin=on")
