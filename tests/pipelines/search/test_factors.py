"""What a search may change, within which limits, and which arms there are: by the toggles of a toy."""

from __future__ import annotations

import pytest
from toys.spinner import Config, Spinner

from perfsweep.pipelines.config.types import MeasureConfig, SweepCommand, TuneConfig
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.search.factors import Factor, Grid, budget, refuse_too_much_memory, search_factors
from perfsweep.workloads.errors import ConfigError

SPACE = Space(Spinner.toggles, Config())


def factors(reference: dict | None = None, **tune: object):
    levels = SPACE.complete(reference or {})
    return search_factors(SPACE, levels, TuneConfig(**tune))  # type: ignore[arg-type]


def refusal(**tune: object) -> str:
    with pytest.raises(ConfigError) as refused:
        factors(**tune)
    return str(refused.value)


def test_a_toggle_is_searched_over_all_levels_that_the_reference_does_not_have() -> None:
    found = factors(toggles=["work", "idle"])
    assert found == ((Factor("work", (None, "single")), Factor("idle", (None, "on"))), {})
    assert factors({"work": "single"}, toggles=["work"])[0] == (Factor("work", (None, "double")),)


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
            {"toggles": ["half", "device_only"], "parity": "exact"},
            "the limits leave nothing to search: half=on: its results may move further than"
            " tune.parity=exact; allow it with tolerance; device_only=on: needs a GPU",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused_and_says_what_to_do(tune: dict, words: str) -> None:
    assert refusal(**tune).startswith(words)


def test_the_ladder_comes_first_and_may_stand_alone() -> None:
    found, _ = factors(toggles=["idle"], ladder="slab", sizes=[2, 8])
    assert [one.name for one in found] == ["slab", "idle"]
    assert found[0].values == (1, 2, 8)
    assert factors(ladder="slab", sizes=[2, 8])[0] == found[:1]


def grid(*names: str, **reference: str) -> Grid:
    levels = SPACE.complete(reference)
    return Grid(SPACE, levels, search_factors(SPACE, levels, TuneConfig(toggles=list(names)))[0])


def test_what_a_level_needs_outside_the_search_is_added_and_inside_it_is_never_moved() -> None:
    assert grid("after").levels((1,)) == SPACE.complete({"work": "single", "after": "on"})
    inside = grid("after", "work")
    assert (inside.legal((1, 0)), inside.levels((1, 0))) == (False, None)
    assert inside.legal((1, 1)) and inside.legal((0, 0)) and inside.legal((0, 1))


GIB = 2**30


@pytest.mark.parametrize(
    ("limit", "there", "bytes_"), [(2.5, 1000, 2.5 * GIB), (None, 1000, 900), (None, 0, None)]
)
def test_an_arm_may_need_what_the_limit_says_or_nine_tenths_of_the_device(
    limit: float | None, there: int, bytes_: float | None
) -> None:
    command = SweepCommand(workload={}, measure=MeasureConfig(memory_gib=limit))
    assert budget(command, there) == bytes_


def test_only_a_limit_beyond_the_device_is_refused() -> None:
    for limit, there in ((None, GIB), (1.0, GIB), (0.5, GIB), (9.0, 0)):  # 0: what is there is unknown
        refuse_too_much_memory("tune", limit, there)
    words = r"^frontier\.memory_gib=2 is more than the 1\.5 GiB of the device; leave it out$"
    with pytest.raises(ConfigError, match=words):
        refuse_too_much_memory("frontier", 2.0, 3 * GIB // 2)
