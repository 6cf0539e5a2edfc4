"""A covering selection of arms holds every legal pair of levels, keeps what is fixed, and is small."""

from __future__ import annotations

from itertools import combinations, product

from pairwise import covering

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Level, Toggle

NAMES = ("a", "b", "c", "d", "e", "f")
CHOICES = {name: [1, 2, 3] for name in NAMES}
FREE = tuple(Toggle(name, (Level(0), Level(1), Level(2), Level(3)), "") for name in NAMES)
KEPT = Toggle("kept", (Level("off"), Level("on")), "")


def pairs_in(arms: list) -> set:
    return {
        frozenset(pair) for arm in arms for pair in combinations(((name, arm[name]) for name in NAMES), 2)
    }


def every_pair() -> set:
    return {
        frozenset({(one, x), (other, y)})
        for one, other in combinations(NAMES, 2)
        for x, y in product((1, 2, 3), repeat=2)
    }


def test_every_pair_occurs_in_few_arms_and_what_is_fixed_stays() -> None:
    arms = covering(Space((*FREE, KEPT)), {"kept": "on"}, CHOICES)
    assert every_pair() <= pairs_in(arms)
    assert {arm["kept"] for arm in arms} == {"on"}
    assert len(arms) <= 20  # of 729 combinations; nine would be the least


def test_an_illegal_pair_is_left_out_and_every_other_one_is_there() -> None:
    torn = Toggle("a", (Level(0), Level(1, conflicts={"b": (2,)}), Level(2), Level(3)), "")
    arms = covering(Space((torn, *FREE[1:])), {}, CHOICES)
    assert every_pair() - pairs_in(arms) == {frozenset({("a", 1), ("b", 2)})}


def test_requirements_are_followed() -> None:
    needy = Toggle("a", (Level(0), Level(1, requires={"kept": ("on",)}), Level(2), Level(3)), "")
    arms = covering(Space((needy, *FREE[1:], KEPT)), {}, CHOICES)
    assert every_pair() <= pairs_in(arms)
    assert all(arm["kept"] == "on" for arm in arms if arm["a"] == 1)
