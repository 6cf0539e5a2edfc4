"""What an arm is made of, and what that means for lists, values, rounding and memory."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest
import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.maths.greedy_choice import FLOAT32_DOUBT
from perfsweep.workloads.prover.maths.policy import PolicyShape, make_weights
from perfsweep.workloads.prover.maths.state_values import EveryState, OncePerJob, OncePerStep, Untallied
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


@pytest.mark.parametrize("name", VARIANTS)
def test_the_reference_looks_at_no_toggle(name: str) -> None:
    own = {"slab_size"}  # numbers of it, whatever the level
    assert name in own or f'levels["{name}"]' not in inspect.getsource(Reference)


def test_every_level_but_the_first_replaces_something() -> None:
    replaces = {
        name: [one.part({name: level.value}) is not None for level in one.toggle.levels]
        for name, one in VARIANTS.items()
    }
    assert all(found[1:] == [True] * len(found[1:]) for name, found in replaces.items() if name not in SILENT)
    assert not any(first for first, *_ in replaces.values())


def test_what_a_level_requires_is_replaced_before_it() -> None:
    moved = arm({**BASE, "select_kernel": "native", "policy_rows": "ragged", "screen16": "on"})
    names = [one.__name__ for one in moved.__mro__]
    assert names.index("KernelMoves") < names.index("Screened") < names.index("Ragged")


def test_slots_and_rules_are_as_many_as_there_can_be_or_as_upstream_padded(kb, knowledge) -> None:
    assert made(kb, pack_width="tight").slots == 7
    assert made(kb).slots == 26
    assert made(knowledge("p(a,b)", "p(X,Y) <- p(Y,X)")).slots == 26
    assert made(knowledge("p(a,b)", "p(X,Y) <- p(X,Z), p(Z,W), p(W,Y)")).slots == 36


@pytest.mark.parametrize(
    ("levels", "values"),
    [
        ({}, EveryState),
        ({"dedup": "step"}, OncePerStep),
        ({"dedup": "global"}, OncePerJob),
        ({"compile": "default"}, Untallied),
    ],
)
def test_states_are_valued_as_the_level_says(kb, levels, values) -> None:
    assert type(made(kb, **levels).values) is values


@pytest.mark.parametrize(("levels", "doubt"), [({}, 1), ({"tf32": "on"}, 10), ({"screen16": "on"}, 1)])
def test_products_that_round_leave_more_choices_in_doubt(kb, levels, doubt: int) -> None:
    assert made(kb, **levels).doubt == doubt * FLOAT32_DOUBT


def test_rows_and_end_states_have_the_integers_of_the_level_and_values_where_these_are_reused(kb) -> None:
    narrow = made(kb, index_dtype="int16", obs_reuse="on")
    rows = narrow.start(torch.tensor([[1, 1, 2]]), torch.tensor([0]))
    assert narrow.ends.dtype == rows.current.dtype == rows.excluded.dtype == torch.int16
    assert rows.value.shape == (1, 3)
    assert made(kb).start(torch.tensor([[1, 1, 2]]), torch.tensor([0])).value.shape == (1, 0)


def test_finished_rows_are_of_no_candidate(kb) -> None:
    rows = made(kb).finished_rows(2)
    assert rows.done.tolist() == [True, True]
    assert rows.number.tolist() == [-1, -1]
    assert not rows.current.any()
    assert rows.excluded.shape == (2, 3)


@pytest.mark.parametrize(
    ("levels", "memory"),
    [
        ({}, {"pairs": 102, "slots": 26, "item": 8, "states": 121}),
        ({"policy_rows": "ragged"}, {"states": 16}),
        ({"policy_rows": "row_budget"}, {"states": 16}),
        ({"pack_width": "tight", "index_dtype": "int16"}, {"slots": 7, "item": 2}),
        ({"rule_pairs": "exact"}, {"pairs": 4}),
        ({"rule_pairs": "ragged", "fact_index": "csr"}, {"pairs": 4}),
    ],
)
def test_memory_is_that_of_the_levels(kb, levels, memory) -> None:
    found = made(kb, **levels).memory
    assert {name: getattr(found, name) for name in memory} == memory
    assert (found.width, found.columns) == (5, 3)


@pytest.mark.parametrize(("largest", "facts"), [(30, 24), (20, 20)])
def test_an_index_is_predicted_to_find_few_facts(largest: int, facts: int) -> None:
    indexed = object.__new__(arm({**BASE, "fact_index": "csr"}))
    indexed.kb = SimpleNamespace(largest_predicate=largest)  # type: ignore[assignment]
    assert indexed.facts_of_a_row == facts


def test_ids_that_do_not_fit_are_refused(kb) -> None:
    class Wide:
        largest_id = 2**15

        def __getattr__(self, name: str) -> object:
            return getattr(kb, name)

    with pytest.raises(
        ConfigError, match=r"index_dtype=int16: ids reach 32768; use toggles\.index_dtype=int32"
    ):
        made(Wide(), index_dtype="int16")
    Wide.largest_id -= 1
    assert made(Wide(), index_dtype="int16").dtype == torch.int16
