"""Designs turn levels into pairs of arms: what is measured against what."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.plan import designs
from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Level, Numbers, Toggle
from perfsweep.workloads.errors import ConfigError

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


def test_a_ladder_climbs_numbers_in_order_whatever_order_they_came_in(space: Space, naive: dict) -> None:
    design = designs.ladder(space, naive, {"slab": [64, 16, "all", 32, 8]})
    assert [effect.level for effect in design.effects] == ["16", "32", "64", "all"]
    (rung,) = designs.ladder(space, space.closure({"copy": "async"}), {"pin": ["on"]}).effects
    assert (rung.design, rung.toggle, rung.also) == ("ladder", "pin", ("copy",)), "what goes back together"


def test_each_is_left_out_that_was_asked_for_and_can_be(space: Space) -> None:
    design = designs.leave_one_out(space, {"amp": "bf16", "copy": "async", "slab": 16}, ["slab", "copy"])
    assert [(effect.toggle, effect.level) for effect in design.effects] == [("copy", "async"), ("slab", "16")]
    never = Level("off", refused=lambda config, levels: "it is needed")
    bound = Space((Toggle("x", (never, Level("on")), ""), *TOGGLES))
    design = designs.leave_one_out(bound, {"x": "on", "amp": "bf16"})
    assert [effect.toggle for effect in design.effects] == ["amp"]
    (refused,) = design.refused
    assert (refused.design, refused.toggle, refused.level) == ("leave_one_out", "x", "on")
    assert refused.reason.endswith("it is needed")


def test_a_step_of_a_chain_names_what_it_adds_and_what_comes_along(space: Space, naive: dict) -> None:
    steps = [{"copy": "async"}, {"pin": "on"}, {"amp": "bf16", "slab": 32}]
    first, second, whole = designs.chain(space, naive, "naive", steps).effects
    assert (first.toggle, first.level, first.also) == ("copy", "async", ("pin",)), "pin changes nothing after"
    assert (second.toggle, second.level, second.also) == ("amp+slab", "bf16,32", ())
    assert (whole.toggle, first.reference, whole.reference) == ("all steps", None, "naive")
    with pytest.raises(ConfigError, match="chain needs `steps`"):
        designs.chain(space, naive, "naive", [])


@pytest.mark.parametrize("given", [["off"], ["on", "on"], [8, 16, 32]])
def test_two_levels_are_two(space: Space, naive: dict, given: list) -> None:
    name = "slab" if 8 in given else "pin"
    with pytest.raises(ConfigError, match=rf"factorial needs two levels of {name}; its levels are: "):
        designs.factorial(space, naive, {"amp": ["bf16"], name: given})


def test_an_interaction_needs_every_arm_and_is_shown_by_those_that_weigh_most(
    space: Space, naive: dict
) -> None:
    *_, effect = designs.factorial(space, naive, {"amp": ["bf16"], "pin": ["on"]}).effects
    assert (effect.toggle, effect.level, len(effect.contrast)) == ("amp x pin", "", 4)
    weights = {space.label(arm): weight for arm, weight in effect.contrast}
    assert weights == pytest.approx({"baseline": 1, "amp=bf16": -1, "pin=on": -1, "amp=bf16,pin=on": 1})
    ((most, least),) = effect.pairs
    assert weights[space.label(most)] > 0 > weights[space.label(least)]
    assert len(effect.arms) == 6 and all(arm in effect.arms for arm, _ in effect.contrast)


NAMED = {"naive": {"slab": 8}, "wide": {"slab": "all"}, "late": {"slab": 4}}


def test_a_part_of_gains_is_the_step_from_one_baseline_to_another() -> None:
    (step,) = designs.steps({"processor": ["naive", "wide"]}, NAMED)
    assert (step.design, step.toggle, step.level, step.reference) == ("arms", "wide", "vs naive", "naive")
    assert step.pairs == (({"slab": "all"}, {"slab": 8}),)


@pytest.mark.parametrize("ends", [["naive"], ["naive", "other"]])
def test_a_part_of_gains_that_is_no_step_between_two_baselines_is_refused(ends: list[str]) -> None:
    message = f"sweep.parts.processor=[{','.join(ends)}]: it must be two baselines of the sweep. Choose from:"
    with pytest.raises(ConfigError) as refused:
        designs.steps({"processor": ends}, NAMED)
    assert str(refused.value) == f"{message} naive, wide, late."
