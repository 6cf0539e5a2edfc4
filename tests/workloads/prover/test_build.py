"""What an arm chooses of its levels, and the parts that this makes."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover import build
from perfsweep.workloads.prover.build import Choices, assemble
from perfsweep.workloads.prover.maths.greedy_choice import FLOAT32_DOUBT
from perfsweep.workloads.prover.maths.policy import PolicyShape, make_weights
from perfsweep.workloads.prover.maths.state_values import EveryState, OncePerJob, OncePerStep, Untallied
from perfsweep.workloads.prover.toggles import TOGGLES

BASE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}
SHAPE = PolicyShape(embedding=3, width=5, layers=1)


def chosen(**levels: str | int) -> Choices:
    return Choices.of({**BASE, **levels})


@pytest.mark.parametrize(
    ("level", "field", "value"),
    [
        ({"slab_size": 512}, "slab_size", 512),
        ({"slab_size": "auto"}, "slab_size", "auto"),
        ({"pad_to_slab": "done_row"}, "pad_to_slab", "done_row"),
        ({"warmup": "exact"}, "warmup_exact", True),
        ({"early_exit_all": "sync"}, "early_exit", "sync"),
        ({"skip_done": "compact"}, "skip_done", "compact"),
        ({"refill": "queue"}, "refill", True),
        ({"compile": "default"}, "compile", "default"),
        ({"corruptions": "all"}, "corruptions", "all"),
        ({"fact_index": "csr"}, "indexed", True),
        ({"pack_width": "tight"}, "tight", True),
        ({"rule_pairs": "exact"}, "rule_pairs", "exact"),
        ({"index_dtype": "int16"}, "dtype", torch.int16),
        ({"index_dtype": "int32"}, "dtype", torch.int32),
        ({"policy_rows": "ragged"}, "policy_rows", "ragged"),
        *(
            ({name: "on"}, name, True)
            for name in ("obs_reuse", "const_states", "forced_skip", "fold", "tf32")
        ),
        *(({name: "on"}, name, True) for name in ("screen16", "fused_trunk")),
        ({"dedup": "step"}, "dedup", "step"),
        ({"compaction": "scan"}, "scan", True),
        ({"expand_kernel": "triton"}, "expand_kernel", "triton"),
        ({"select_kernel": "native"}, "select_kernel", "native"),
    ],
)
def test_each_level_reaches_its_choice_and_no_other(level: dict, field: str, value: object) -> None:
    found, base = chosen(**level), chosen()
    assert getattr(found, field) == value != getattr(base, field)
    others = {one.name for one in dataclasses.fields(Choices)} - {field}
    assert all(getattr(found, name) == getattr(base, name) for name in others)


def test_lists_are_ragged_and_shapes_static_where_a_level_says_so() -> None:
    assert chosen(policy_rows="ragged").ragged and not chosen().ragged
    assert chosen(compile="default").static and not chosen().static


@pytest.fixture
def kb(knowledge):
    return knowledge("p(a,b) p(b,c)", "p(X,Y) <- p(X,Z), p(Z,Y)\np(X,Y) <- p(Y,X)")


def test_slots_and_rules_are_as_many_as_there_can_be_or_as_upstream_padded(kb, knowledge) -> None:
    assert chosen(pack_width="tight").slots(kb) == 7
    assert chosen().slots(kb) == 26
    assert chosen().slots(knowledge("p(a,b)", "p(X,Y) <- p(Y,X)")) == 26
    assert chosen().slots(knowledge("p(a,b)", "p(X,Y) <- p(X,Z), p(Z,W), p(W,Y)")) == 36
    assert chosen().rules(kb) == 100
    assert chosen(rule_pairs="exact").rules(kb) == chosen(rule_pairs="ragged").rules(kb) == 2


def assembled(kb, **levels: str | int):
    choices = chosen(**levels)
    weights = make_weights(SHAPE, kb.vocabulary, 0)
    return assemble(kb, weights, SHAPE, choices, NullClock.phase)


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
    assert type(assembled(kb, **levels).values) is values


@pytest.mark.parametrize(("levels", "doubt"), [({}, 1), ({"tf32": "on"}, 10), ({"screen16": "on"}, 1)])
def test_products_that_round_leave_more_choices_in_doubt(kb, levels, doubt: int) -> None:
    assert assembled(kb, **levels).step.doubt == doubt * FLOAT32_DOUBT


def test_parts_are_those_of_the_levels(kb) -> None:
    made = assembled(kb, corruptions="all", pad_to_slab="done_row", index_dtype="int16", obs_reuse="on")
    assert (made.corruptions, made.pad, made.fixed, made.screen) == ("all", "done_row", False, None)
    assert made.scorer.constants.dtype == torch.int16
    assert (made.scorer.reuse, made.scorer.once, made.scorer.skip) == (True, False, False)
    rows = made.factory.start(torch.tensor([[1, 1, 2]]), torch.tensor([0]))
    assert rows.value.shape == (1, 3)
    plain = assembled(kb, const_states="on", forced_skip="on", policy_rows="row_budget", compile="default")
    assert plain.fixed
    assert (plain.scorer.reuse, plain.scorer.once, plain.scorer.skip) == (False, True, True)
    assert plain.factory.start(torch.tensor([[1, 1, 2]]), torch.tensor([0])).value.shape == (1, 0)
    folded = assembled(kb, fold="on").policy
    assert folded.folded and not folded.low
    screened = assembled(kb, screen16="on")
    assert screened.screen is screened.scorer.screen
    assert screened.screen.low.low and not screened.policy.low


@pytest.mark.parametrize(
    ("levels", "memory"),
    [
        ({}, {"pairs": 102, "slots": 26, "item": 8, "states": 121}),
        ({"policy_rows": "ragged"}, {"states": 16}),
        ({"pack_width": "tight", "index_dtype": "int16"}, {"slots": 7, "item": 2}),
        ({"rule_pairs": "exact"}, {"pairs": 4}),
    ],
)
def test_memory_is_that_of_the_levels(kb, levels, memory) -> None:
    found = assembled(kb, **levels).memory
    assert {name: getattr(found, name) for name in memory} == memory
    assert (found.width, found.columns) == (5, 3)


def test_ids_that_do_not_fit_are_refused(kb, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wide:
        largest_id = 2**15 - 1

    build._refuse_wide_ids(Wide, chosen(index_dtype="int16"))  # type: ignore[arg-type]
    Wide.largest_id += 1
    with pytest.raises(
        ConfigError, match=r"index_dtype=int16: ids reach 32768; use toggles\.index_dtype=int32"
    ):
        build._refuse_wide_ids(Wide, chosen(index_dtype="int16"))  # type: ignore[arg-type]
