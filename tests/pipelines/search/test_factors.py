"""What a search may change, and which arms there are: by the toggles of a toy."""

from __future__ import annotations

import math

import pytest
from toys.spinner import Config, Spinner

from perfsweep.pipelines.config.types import TuneConfig
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.search.factors import Grid, ladder_factor, search_factors
from perfsweep.pipelines.search.surrogate import Factor
from perfsweep.workloads.errors import ConfigError

SPACE = Space(Spinner.toggles, Config())
NAIVE = SPACE.complete({})


def factors(reference: dict | None = None, **tune: object):
    levels = SPACE.complete(reference or {})
    return search_factors(SPACE, levels, TuneConfig(**tune))  # type: ignore[arg-type]


def refusal(**tune: object) -> str:
    with pytest.raises(ConfigError) as refused:
        factors(**tune)
    return str(refused.value)


def test_a_toggle_is_searched_over_all_levels_that_the_reference_does_not_have() -> None:
    found = factors(toggles=["work", "idle"])
    assert found.factors == (Factor("work", (None, "single")), Factor("idle", (None, "on")))
    assert found.left_out == {}
    assert factors({"work": "single"}, toggles=["work"]).factors == (Factor("work", (None, "double")),)


def test_named_levels_are_searched_alone_and_a_toggle_named_twice_stands_once() -> None:
    found = factors(toggles=["trouble"], levels={"trouble": ["oom", "late", "oom"], "idle": ["on"]})
    assert found.factors == (Factor("trouble", (None, "oom", "late")), Factor("idle", (None, "on")))


def test_levels_beyond_the_allowed_parity_or_not_supported_are_left_out_and_say_why() -> None:
    found = factors(toggles=["work", "half", "device_only"], parity="exact")
    assert [one.name for one in found.factors] == ["work"]
    assert found.left_out == {
        ("half", "on"): "its results may move as far as tolerance, and tune.parity=exact",
        ("device_only", "on"): "needs a GPU",
    }
    assert [one.name for one in factors(toggles=["half"], parity="tolerance").factors] == ["half"]
    assert [one.name for one in factors(toggles=["half"], parity="stochastic").factors] == ["half"]


@pytest.mark.parametrize(
    ("tune", "words"),
    [
        ({}, "tune.toggles is empty: name up to 8 of work, idle, sign,"),
        (
            {"toggles": ["slab"], "ladder": "slab"},
            "slab is in tune.toggles and in tune.ladder; keep it in one of them",
        ),
        (
            {"levels": {name: ["on"] for name in "abcdefghi"}},
            "tune.toggles has 9 toggles, and a search takes 8; tune the likeliest first",
        ),
        (
            {"levels": {"idle": ["off"]}},
            "idle has no level to try but off, which the baseline has; choose from: ",
        ),
        (
            {"toggles": ["half", "device_only"], "parity": "exact"},
            "the limits leave nothing to search: half=on: its results may move as far as tolerance, and"
            " tune.parity=exact; device_only=on: needs a GPU",
        ),
        ({"toggles": ["wrok"]}, "toggles.wrok is unknown; did you mean work?"),
    ],
)
def test_what_cannot_be_searched_is_refused_and_says_what_to_do(tune: dict, words: str) -> None:
    assert refusal(**tune).startswith(words)


def test_eight_toggles_are_searched() -> None:
    names = ["work", "idle", "sign", "half", "after", "never", "variable", "group"]
    assert len(factors(toggles=names).factors) == 8


def test_the_ladder_comes_first_and_may_stand_alone() -> None:
    found = factors(toggles=["idle"], ladder="slab", sizes=[2, 8])
    assert [one.name for one in found.factors] == ["slab", "idle"]
    assert found.factors[0].values == (1, 2, 8)
    assert factors(ladder="slab", sizes=[2, 8]).factors == found.factors[:1]


@pytest.mark.parametrize(
    ("sizes", "start", "values", "logs", "place"),
    [
        ([2, 8], 4, (2, 4, 8), (1.0, 2.0, 3.0), 1),
        ([8, 2], 2, (2, 8), (1.0, 3.0), 0),
        ([2, 8], "auto", ("auto", 2, 8), (None, 1.0, 3.0), 0),
        ([0, 1], 3, (0, 1, 3), (None, 0.0, math.log2(3)), 2),
    ],
)
def test_a_ladder_has_what_the_search_starts_from_among_its_sizes(
    sizes: list[int], start: int | str, values: tuple, logs: tuple, place: int
) -> None:
    assert ladder_factor("slab", sizes, start) == Factor("slab", values, logs, place)


def grid(*names: str, **reference: str) -> Grid:
    levels = SPACE.complete(reference)
    return Grid(SPACE, levels, search_factors(SPACE, levels, TuneConfig(toggles=list(names))).factors)


def test_a_point_is_the_reference_with_some_levels_changed() -> None:
    around = grid("idle", "sign", work="single")
    assert around.point({}) == (0, 0)
    assert around.point({"sign": 1}) == (0, 1)
    assert around.levels((0, 1)) == SPACE.complete({"work": "single", "sign": "wrong"})


def test_what_a_level_needs_outside_the_search_is_added_and_inside_it_is_never_moved() -> None:
    assert grid("after").levels((1,)) == SPACE.complete({"work": "single", "after": "on"})
    inside = grid("after", "work")
    assert (inside.legal((1, 0)), inside.levels((1, 0))) == (False, None)
    assert inside.legal((1, 1)) and inside.legal((0, 0)) and inside.legal((0, 1))


def test_what_the_workload_refuses_is_no_arm() -> None:
    odd = Space(Spinner.toggles, Config(size=3))
    refused = Grid(odd, odd.complete({}), (Factor("never", (None, "with_odd")),))
    assert not refused.legal((1,)) and refused.legal((0,))


def test_a_ladder_moves_from_where_it_starts() -> None:
    ladder = Grid(SPACE, SPACE.complete({"slab": 4}), (ladder_factor("slab", [2, 8], 4),))
    assert ladder.point({}) == (1,)
    moved = [ladder.levels((place,)) for place in range(3)]
    assert [levels and levels["slab"] for levels in moved] == [2, 4, 8]
