"""What an arm is made of, and what that means for lists, values, rounding and memory."""

from __future__ import annotations

import inspect

import pytest

from perfsweep.workloads.prover.maths.greedy_choice import FLOAT32_DOUBT
from perfsweep.workloads.prover.maths.policy import PolicyShape, make_weights
from perfsweep.workloads.prover.reference import Reference
from perfsweep.workloads.prover.variants import TOGGLES, VARIANTS, arm

BASE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}
SHAPE = PolicyShape(embedding=3, width=5, layers=1)
SILENT = {"slab_size", "slab_search", "compile_cache"}
"""Toggles with levels that replace nothing: numbers, what another level asks for, what the pipelines do."""


@pytest.fixture
def kb(knowledge):
    return knowledge("p(a,b) p(b,c)", "p(X,Y) <- p(X,Z), p(Z,Y)\np(X,Y) <- p(Y,X)")


def made(kb, **levels: str | int) -> Reference:
    own = {**BASE, **levels}
    return arm(own)(own, kb, make_weights(SHAPE, kb.vocabulary, 0), SHAPE)


def test_the_naive_arm_is_the_reference_and_nothing_else() -> None:
    assert arm(BASE).__mro__[1:] == Reference.__mro__


def test_the_reference_looks_at_no_toggle_but_for_the_numbers_of_one() -> None:
    source = inspect.getsource(Reference)
    assert {name for name in VARIANTS if f'levels["{name}"]' in source} <= {"slab_size"}


def test_every_level_but_the_first_replaces_something() -> None:
    replaces = {
        name: [one.part({name: level.value}) is not None for level in one.toggle.levels]
        for name, one in VARIANTS.items()
    }
    assert all(found[1:] == [True] * len(found[1:]) for name, found in replaces.items() if name not in SILENT)
    assert not any(first for first, *_ in replaces.values())


@pytest.mark.parametrize(("levels", "doubt"), [({}, 1), ({"tf32": "on"}, 10), ({"screen16": "on"}, 1)])
def test_products_that_round_leave_more_choices_in_doubt(kb, levels, doubt: int) -> None:
    assert made(kb, **levels).doubt == doubt * FLOAT32_DOUBT


@pytest.mark.parametrize(
    ("levels", "memory"),
    [
        ({}, {"pairs": 102, "slots": 26, "item": 8, "states": 121}),
        ({"policy_rows": "ragged"}, {"states": 16}),
        ({"pack_width": "tight", "index_dtype": "int16"}, {"slots": 7, "item": 2}),
        ({"rule_pairs": "ragged", "fact_index": "csr"}, {"pairs": 4}),
    ],
)
def test_memory_is_that_of_the_levels(kb, levels, memory) -> None:
    found = made(kb, **levels).memory
    assert {name: getattr(found, name) for name in memory} == memory
    assert (found.width, found.columns) == (5, 3)
