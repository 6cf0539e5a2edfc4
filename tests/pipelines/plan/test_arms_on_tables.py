"""The four field reports' tables, planned: closures, refusals, best arms and designs as the reports mean."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from tables import latentwire, probe1d, prover, spd

from perfsweep.pipelines.plan import designs
from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device, Levels, LevelValue
from perfsweep.workloads.errors import ConfigError

TABLES: dict[str, ModuleType] = {"probe1d": probe1d, "spd": spd, "prover": prover, "latentwire": latentwire}

FOUR_GPUS = Device(type="cuda", count=4, name="H200", capability=(9, 0))

# Levels that no arm on top of the naive path can have, with the word that says why.
OUT_OF_REACH: dict[tuple[str, str, LevelValue], str] = {
    ("spd", "gradients", "formulas"): "formulas are those of a toy",
    ("spd", "gradients", "native"): "formulas are those of a toy",
}

# Levels that are the baseline wherever they are legal: an arm of their own would be compared with itself.
NO_EFFECT: set[tuple[str, str, LevelValue]] = {("probe1d", "consistent_stop", "mismatch")}

# The search and the size it chooses need each other, so they come and go together.
TOGETHER: dict[tuple[str, str, LevelValue], set[str]] = {
    ("prover", "slab_size", "auto"): {"slab_size", "slab_search"},
    ("prover", "slab_search", "ladder"): {"slab_size", "slab_search"},
}


def space(table: str, **config: Any) -> Space:
    return Space(TABLES[table].TOGGLES, TABLES[table].Config(**config))


EVERY_LEVEL = [
    pytest.param(table, toggle.name, level.value, id=f"{table}-{toggle.name}-{level.value}")
    for table, module in TABLES.items()
    for toggle in module.TOGGLES
    for level in toggle.levels[1:]
]

FORBIDDEN = [
    pytest.param(table, arm, word, id=f"{table}-{number}-{word}")
    for table, module in TABLES.items()
    for number, (arm, word) in enumerate(module.FORBIDDEN)
]

REFUSED_BY_CONFIG = [
    pytest.param(table, config, arm, word, id=f"{table}-{number}-{word}")
    for table, module in TABLES.items()
    for number, (config, arm, word) in enumerate(module.REFUSED_BY_CONFIG)
]


def moved(here: Space, arm: Levels, base: Levels) -> set[str]:
    """Toggles that were chosen differently; a baseline that follows another toggle is not chosen."""
    chosen, before = here.choices(arm), here.choices(base)
    return {name for name in arm if chosen.get(name) != before.get(name)}


@pytest.mark.parametrize("table, toggle, level", EVERY_LEVEL)
def test_every_level_is_reached_from_the_naive_path(table: str, toggle: str, level: LevelValue) -> None:
    here = space(table)
    if word := OUT_OF_REACH.get((table, toggle, level)):
        with pytest.raises(ConfigError, match=word):
            here.closure({toggle: level})
        return
    arm = here.closure({toggle: level})
    assert arm[toggle] == level
    assert here.problems(arm) == []


@pytest.mark.parametrize("table, toggle, level", EVERY_LEVEL)
def test_the_base_of_a_level_keeps_what_the_level_requires(
    table: str, toggle: str, level: LevelValue
) -> None:
    """Otherwise what a required level buys would be credited to the one that needs it."""
    if (table, toggle, level) in OUT_OF_REACH:
        return
    here = space(table)
    arm = here.closure({toggle: level})
    base = here.without(arm, toggle)
    assert here.problems(base) == []
    expected = (
        set() if (table, toggle, level) in NO_EFFECT else TOGETHER.get((table, toggle, level), {toggle})
    )
    assert moved(here, arm, base) == expected


@pytest.mark.parametrize("table, arm, word", FORBIDDEN)
def test_a_forbidden_combination_is_refused_in_words(
    table: str, arm: dict[str, LevelValue], word: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        space(table).legal(arm)
    assert word in str(refusal.value)
    assert any(name in str(refusal.value) for name in arm)


@pytest.mark.parametrize("table, config, arm, word", REFUSED_BY_CONFIG)
def test_a_configuration_refuses_levels_by_name(
    table: str, config: Any, arm: dict[str, LevelValue], word: str
) -> None:
    here = Space(TABLES[table].TOGGLES, config)
    with pytest.raises(ConfigError, match=word):
        here.legal(arm)


@pytest.mark.parametrize("table", TABLES)
def test_one_at_a_time_measures_every_level_that_can_act(table: str) -> None:
    here = space(table)
    found = designs.one_at_a_time(here, here.legal({}))
    measured = {(effect.toggle, effect.level) for effect in found.effects}
    levels = {(toggle.name, level.value) for toggle in TABLES[table].TOGGLES for level in toggle.levels[1:]}
    closed = {(toggle, level) for name, toggle, level in (*OUT_OF_REACH, *NO_EFFECT) if name == table}
    assert measured == {(toggle, str(level)) for toggle, level in levels - closed}
    assert {(r.toggle, r.level) for r in found.refused} == {
        (toggle, str(level)) for name, toggle, level in OUT_OF_REACH if name == table
    }


def test_several_gpus_change_the_naive_path_of_latentwire_alone() -> None:
    for table, module in TABLES.items():
        naive = Space(module.TOGGLES, module.Config(), FOUR_GPUS).legal({})
        expected = {"parallel": "layer_split"} if table == "latentwire" else {}
        assert {
            name: value for name, value in naive.items() if value != space(table).legal({})[name]
        } == expected
