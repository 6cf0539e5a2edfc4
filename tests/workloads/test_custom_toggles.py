"""Toggles written as data: what a level changes of a program, and what cannot be meant."""

from __future__ import annotations

from typing import Any

import pytest

from perfsweep.workloads import custom_toggles
from perfsweep.workloads.api import Parity
from perfsweep.workloads.custom_toggles import with_arguments
from perfsweep.workloads.errors import ConfigError

DECLARED = {
    "flash": {False: "--flash=False", True: "--flash=True", "parity": "tolerance"},
    "accum": {1: "--accum=1 --batch_size=16", 4: "--accum=4 --batch_size=4"},
    "arena": {"off": None, "on": {"env": {"MALLOC_ARENA_MAX": 1}, "ranks": 2}},
    "norm": {"off": {}, "on": {"replace": {"model:Norm": "fast:Norm"}, "parity": "stochastic"}},
}


def test_the_first_level_is_the_baseline_and_keeps_its_class() -> None:
    flash, accum, arena, norm = custom_toggles.read(DECLARED).toggles
    assert [level.value for level in flash.levels] == ["off", "on"]
    assert [level.parity for level in flash.levels] == [Parity.EXACT, Parity.TOLERANCE]
    assert [level.value for level in accum.levels] == [1, 4]
    assert norm.levels[1].parity is Parity.STOCHASTIC
    assert (arena.levels[1].env, arena.levels[1].ranks) == ({"MALLOC_ARENA_MAX": "1"}, 2)


def test_arguments_of_levels_take_the_place_of_their_like_and_others_follow() -> None:
    custom = custom_toggles.read(DECLARED)
    chosen = custom.chosen({"flash": "on", "accum": 4, "arena": "off", "norm": "on"})
    arguments = with_arguments(["--batch_size=16", "--verbose"], chosen)
    assert arguments == ["--batch_size=4", "--verbose", "--flash=True", "--accum=4"]
    assert [dict(change.replace) for change in chosen] == [{}, {}, {}, {"model:Norm": "fast:Norm"}]


def test_a_variable_without_a_value_is_left_unset() -> None:
    (arena,) = custom_toggles.read({"arena": {"off": {"env": {"A": ""}}, "on": {"env": {"A": "1"}}}}).toggles
    assert [dict(level.env) for level in arena.levels] == [{}, {"A": "1"}]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("--flash", "must map levels"),
        ({"on": "--flash"}, "has 1 levels and needs two"),
        ({"off": 3, "on": "--flash"}, r"flash\.off must be arguments as a text"),
        ({"off": "", "on": {"argz": "--flash"}}, "argz is unknown; did you mean args"),
        ({"off": "", "on": {"args": "--name='x"}}, "cannot be split"),
        ({"off": "", "on": {"replace": {"model": "fast:f"}}}, "write module:function for model"),
        ({"off": "", "on": {"ranks": 0}}, "ranks=0 must be a whole number from 1"),
        ({"off": "", "on": "--flash", "parity": "loose"}, "parity=loose is unknown; choose from: exact"),
        ({"off": "", "on": {"env": ["A=1"]}}, "env must be a mapping"),
    ],
)
def test_what_cannot_be_meant_is_named(values: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        custom_toggles.read({"flash": values})
