"""What an arm is made of, and what that means for lists, values, rounding and memory."""

from __future__ import annotations

import dataclasses
import inspect
from types import SimpleNamespace

import pytest
import torch

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.data.corruption import Corruptor, Source
from perfsweep.workloads.prover.maths.episodes import Results, Rows
from perfsweep.workloads.prover.maths.greedy_choice import FLOAT32_DOUBT
from perfsweep.workloads.prover.maths.policy import PolicyShape, make_weights
from perfsweep.workloads.prover.oracle import Scorer, play
from perfsweep.workloads.prover.reference import Queue, Reference
from perfsweep.workloads.prover.training import resolver_of
from perfsweep.workloads.prover.variants import FAST, TOGGLES, VARIANTS, arm, finished_rows
from perfsweep.workloads.prover.variants.hand_written import cannot_expand

NATIVE = {**FAST, "expand_kernel": "native", "select_kernel": "native", "fused_trunk": "on"}

BASE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}
SHAPE = PolicyShape(embedding=3, width=5, layers=1)
SILENT = {"slab_size", "slab_search", "compile_cache"}
"""Toggles with levels that replace nothing: numbers, what another level asks for, what the pipelines do."""


@pytest.fixture
def kb(knowledge):
    return knowledge("p(a,b) p(b,c)", "p(X,Y) <- p(X,Z), p(Z,Y)\np(X,Y) <- p(Y,X)")


def made(kb, seed: int = 0, **levels: str | int) -> Reference:
    own = {**BASE, **levels}
    return arm(own)(own, kb, make_weights(SHAPE, kb.vocabulary, seed), SHAPE)


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


SPACE = Space(TOGGLES, ProverConfig(), Device(compiler=True))
BRIEF = {"early_exit_all": "sync", "slab_size": 7, "rule_pairs": "exact", "pack_width": "tight"}
"""What makes the naive path short."""
LONG_WALKS = 286
"""A seed of weights with walks of 1 to 10 steps, of which no two do the same for long."""
ARMS = {
    f"{toggle.name}={level.value}": {**BRIEF, toggle.name: level.value}
    for toggle in TOGGLES
    for level in toggle.levels[1:]
    if level.unsupported(Device(compiler=True)) is None and toggle.name not in SILENT | {"compile"}
}
ARMS |= {
    "naive": {},
    "fast": {**FAST, "slab_size": 3},
    "native": {**NATIVE, "slab_size": 3},
    "screened": {**NATIVE, **BRIEF, "refill": "off", "screen16": "on"},
}
LISTED, RULES_TRIED, FACTS_TRIED = 87, 94, 29
"""Successors in the lists of the oracle's walks, and rules and facts that their goals are paired with."""
FACTS = "p(a,b) p(b,c) p(c,d) p(d,e) p(e,b) q(b,a) q(d,b) q(c,c) q(a,e) r(a,a) r(e,c)"
RULES = """
    s(X,Z) <- p(X,Y), s(Y,Z)
    s(X,Y) <- q(Y,X)
    s(X,X) <- r(X,Y), p(Y,Z), q(Z,Y)
    r(X,Y) <- s(Y,X), q(X,Z)
    q(X,Z) <- p(X,Y), p(Y,Z)
"""


WITNESSED = {
    "pad_to_slab=done_row": 18,
    "early_exit_all=sync": 18,
    "early_exit_all=every_k": 24,
    "early_exit_all=async_lag1": 21,
    "skip_done=where_mask": 36,
    "skip_done=compact": 78,
    "refill=queue": 15,
    "fact_index=csr": 29,
    "pack_width=tight": 165888,
    "rule_pairs=exact": 324,
    "rule_pairs=ragged": 157,
    "index_dtype=int32": 82944,
    "index_dtype=int16": 41472,
    "policy_rows=row_budget": 2304,
    "policy_rows=ragged": 303,
    "obs_reuse=on": 12975,
    "const_states=on": 12963,
    "forced_skip=on": 201,
    "dedup=step": 211,
    "dedup=global": 49,
    "compaction=scan": 0,
    "screen16=on": 87,
    "expand_kernel=native": 72,
    "select_kernel=native": 72,
    "fused_trunk=on": 26136,
}
"""What the witness of a level counts of these walks, where steps tell it."""


@pytest.fixture(scope="module")
def walked():
    """The walks of the oracle, once for all arms, which are given the same candidates and weights."""
    return []


@pytest.mark.parametrize("name", ARMS)
def test_walks_of_every_arm_are_the_oracles(knowledge, walked, monkeypatch, name) -> None:
    monkeypatch.setattr(finished_rows, "SMALLEST_BUCKET", 2)  # of slabs that are small here
    kb, log, results = knowledge(FACTS, RULES), [], Results(torch.device("cpu"), traces=True)
    levels = SPACE.closure(ARMS[name])
    own, size = made(kb, LONG_WALKS, **levels), levels["slab_size"]
    queries = torch.tensor([kb.vocabulary.encode(("s", *pair)) for pair in ("ad", "cc", "ee")])
    source = Source(own.draws(Corruptor(kb, "both", 4, 1), queries), queries[:0])
    own.begin_job()
    list(own.schedule(Queue(source, results, log.append, None if size == "all" else size, budget=10**9)))
    if not walked:
        weights = {key: one.double().numpy() for key, one in own.weights.items()}
        oracle, scorer = resolver_of(kb), Scorer(weights, SHAPE.layers)
        asked = Corruptor(kb, "both", 4, 1).together(queries).atoms.tolist()
        walked += [play(oracle, scorer, tuple(atom)) for atom in asked]
    found = results.arrays()
    for field in ("success", "depth", "ambiguous"):
        assert found[field].tolist() == [getattr(walk, field) for walk in walked]
    assert [tuple(row[row >= 0]) for row in found["actions"]] == [walk.actions for walk in walked]
    assert found["log_prob"] == pytest.approx([walk.log_prob for walk in walked], abs=1e-4)
    total = {key: sum(float(row[key]) for row in log) for key in log[0] if key != "step_ms"}
    depths = sum(walk.depth for walk in walked)
    every = {"done": 15, "useful_row_steps": depths, "active": depths, "states_real": LISTED}
    every |= {"overflow": 0, "deferred": 0}
    assert total.items() >= every.items()
    counted = own.counted()
    own.begin_job()
    own.warmed_up()
    assert (own.counted()["states_evaluated"], getattr(own.values, "used", 0)) == (0, 0)
    if name in WITNESSED:
        toggle, value = name.split("=")
        witness = {str(level.value): level.witness for level in SPACE.toggle(toggle).levels}[value]
        assert {"steps": len(log), **total, **counted}[witness] == WITNESSED[name]
    if name in ("fast", "native"):  # which do nothing that a walk does not need
        packed = LISTED * 6 if name == "native" else (RULES_TRIED + FACTS_TRIED) * kb.raw_atoms
        every |= {"states_wanted": LISTED, "states_padded": LISTED, "bytes_packed": packed * 3 * 4}
        every |= {"rule_pairs": RULES_TRIED, "fact_pairs": FACTS_TRIED, "row_steps": depths}
        assert total == {**every, "slabs": 1, "padded_rows": 0, "refilled": 15} | (
            {} if name == "native" else {"sorts": 0}
        )
    if name == "naive":  # every row, for twenty steps, with a hundred rules, all facts and all places
        states, packed = 300 * (119 + 2), 300 * (100 + 5) * 36
        every |= {"states_wanted": states, "states_padded": states, "bytes_packed": packed * 3 * 8}
        every |= {"rule_pairs": 300 * 100, "fact_pairs": 300 * 5, "row_steps": 300, "sorts": 2 * 20}
        assert total == {**every, "slabs": 1, "padded_rows": 0}


def test_an_arm_reserves_what_its_data_may_need(kb, knowledge) -> None:
    assert made(kb, dedup="global").values.room == 2**17
    assert made(knowledge("p(a,b)", "p(X,Y) <- p(Y,X)")).slots == 26
    facts = " ".join(f"p(a,c{number})" for number in range(25))
    many = knowledge(facts, "p(X,Y) <- p(X,Z), p(Z,W), p(W,Y)\n" + "p(X,Y) <- p(Y,X)\n" * 100)
    assert (made(many).slots, made(many).rules_of_a_row, made(many).facts_of_a_row) == (36, 101, 25)
    assert made(many, fact_index="csr").facts_of_a_row == 24
    fixed = made(kb, fact_index="csr", compile="default").fact_pairs(kb.facts)
    assert len(fixed.owner) == 2 * 32 and int(fixed.real.sum()) == 2
    widest = dataclasses.replace(kb, rule_variables=2**15 - 1 - kb.vocabulary.base)
    assert made(widest, index_dtype="int16").ends.dtype == torch.int16
    said = "^toggles.index_dtype=int16: ids reach 32768; use toggles.index_dtype=int32$"
    with pytest.raises(ConfigError, match=said):
        made(dataclasses.replace(widest, rule_variables=widest.rule_variables + 1), index_dtype="int16")


def test_an_episode_begins_with_its_query_alone(kb) -> None:
    atoms, numbers = torch.tensor([[1, 1, 2], [1, 2, 3]]), torch.tensor([7, 8])
    rows = made(kb, index_dtype="int16", obs_reuse="on").start(atoms, numbers)
    assert type(rows) is Rows and rows.value.shape == (2, SHAPE.embedding)
    assert rows.current.dtype == rows.excluded.dtype == torch.int16 and rows.number is numbers
    assert torch.equal(rows.current[:, 0], rows.excluded) and rows.excluded.tolist() == atoms.tolist()
    assert rows.stored.tolist() == [1, 1] and rows.history[:, 0].unique().shape == (2,)
    others = (rows.current[:, 1:], rows.history[:, 1:], rows.actions + 1, *rows[4:9])
    assert not any(part.any() for part in others)
    assert [part.shape for part in others[1:3]] == [(2, 20), (2, 20)]
    assert made(kb).start(atoms, numbers).value.shape == (2, 0)


@pytest.mark.parametrize(("kernel", "longest"), [("native", 10), ("triton", 11)])
def test_a_kernel_has_room_for_two_arguments_and_for_bodies_up_to_its_own(kernel, longest) -> None:
    assert cannot_expand(kernel, 2, longest) is None
    for arity, body in ((2, longest + 1), (1, longest), (3, 1)):
        assert cannot_expand(kernel, arity, body) == (
            f"takes atoms of two arguments and bodies of at most {longest} atoms, and the data have {arity}"
            f" arguments and bodies of {body}: use expand_kernel=torch"
        )


def test_int16_is_refused_from_the_first_id_on_that_it_cannot_hold() -> None:
    refused = SPACE.toggle("index_dtype").level("int16").refused
    assert refused(SimpleNamespace(largest_id=2**15 - 1), {}) is None
    said = "ids reach 32768, and int16 ends at 32767: use index_dtype=int32"
    assert refused(SimpleNamespace(largest_id=2**15), {}) == said
