"""Fractional designs: which one is taken, what is left out, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.plan.fractional import GENERATORS, fractional
from perfsweep.workloads.api import Level, Toggle
from perfsweep.workloads.errors import ConfigError

NAMES = "ABCDEFGH"


def designed(count: int, resolution: int | None = None, **levels: Level) -> Any:
    toggles = tuple(Toggle(name, (Level("off"), levels.get(name, Level("on"))), "") for name in NAMES[:count])
    space = Space(toggles)
    return fractional(space, space.complete({}), {name: ["on"] for name in NAMES[:count]}, resolution)


@pytest.mark.parametrize(
    ("count", "resolution", "arms"),
    [
        (5, None, 16),
        (5, 5, 16),
        (6, None, 16),
        (6, 6, 32),
        (7, None, 16),
        (7, 4, 16),
        (8, None, 16),
        (8, 5, 64),
    ],
)
def test_a_resolution_says_how_many_arms_there_are(count: int, resolution: int | None, arms: int) -> None:
    found = designed(count, resolution)
    every = {tuple(arm.values()) for effect in found.effects for arm, _ in effect.contrast}
    assert len(every) == arms and found.refused == ()
    assert [effect.toggle for effect in found.effects[:count]] == list(NAMES[:count])
    assert all(arm.keys() == set(NAMES[:count]) for arm, _ in found.effects[0].contrast)


def test_a_main_effect_is_its_toggle_on_against_off() -> None:
    for effect in designed(5).effects[:5]:
        signs = {arm[effect.toggle]: weight > 0 for arm, weight in effect.contrast}
        assert signs == {"on": True, "off": False}
        assert sum(weight for _, weight in effect.contrast) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("count", "resolution", "says"),
    [
        (4, None, "fractional takes five to eight toggles, and 4 are given"),
        (5, 4, "resolution 4 with 5 toggles is unknown; choose from: 5$"),
        (6, 5, "resolution 5 with 6 toggles is unknown; choose from: 4, 6$"),
    ],
)
def test_a_design_that_nobody_knows_is_refused(count: int, resolution: int | None, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        designed(count, resolution)
    assert min(GENERATORS) == 5


def test_what_is_illegal_is_left_out_by_its_levels() -> None:
    never = {"C": ("on",), "D": ("on",)}
    with pytest.raises(
        ConfigError, match=r"of 16 combinations are illegal, such as A=.*these levels cannot go"
    ):
        designed(5, None, A=Level("on", conflicts={"B": ("on",)}), B=Level("on", conflicts=never))
