"""Successor lists of torch paths and native kernel, against the oracle and cases worked out by hand."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import tiered

from perfsweep.workloads.prover.data.formats import Problem, Rule
from perfsweep.workloads.prover.data.generator import generate
from perfsweep.workloads.prover.data.hashing import hash_states, mix_int
from perfsweep.workloads.prover.data.knowledge import MAX_DEPTH, KnowledgeBase
from perfsweep.workloads.prover.maths.episodes import Rows
from perfsweep.workloads.prover.maths.packing import canonical
from perfsweep.workloads.prover.maths.policy import PolicyShape, make_weights
from perfsweep.workloads.prover.oracle import Resolver, mix
from perfsweep.workloads.prover.training import as_tensor, resolver_of
from perfsweep.workloads.prover.variants import TOGGLES, arm

BASELINE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}
EACH_WAY = ("naive", "all", "native")
NATIVE = {"expand_kernel": "native", "policy_rows": "ragged"}
PATHS = {
    "naive": {},
    "csr": {"fact_index": "csr"},
    "tight": {"pack_width": "tight"},
    "exact rules": {"rule_pairs": "exact"},
    "ragged rules": {"rule_pairs": "ragged"},
    "int32": {"index_dtype": "int32"},
    "int16": {"index_dtype": "int16"},
    "scan": {"compaction": "scan"},
    "ragged": {"policy_rows": "ragged"},
    "static index": {"fact_index": "csr", "compile": "default"},
    "all": {
        "fact_index": "csr",
        "pack_width": "tight",
        "rule_pairs": "ragged",
        "index_dtype": "int32",
        "policy_rows": "ragged",
        "compaction": "scan",
    },
    "native": NATIVE,
    "native in grids": {"expand_kernel": "native", "index_dtype": "int64"},
}


def expand(kb: KnowledgeBase, states, queries, histories, path):
    """Lists by row as tuples of atoms, special actions included; and which rows were cut."""
    levels, shape = {**BASELINE, **path}, PolicyShape(1, 1, 0)
    made = arm(levels)(levels, kb, make_weights(shape, kb.vocabulary, 0), shape)
    states = as_tensor(states)
    rows = blank_rows(states, torch.tensor(queries), histories, made.dtype)
    with torch.no_grad():
        lists, deferred = made.expand(rows, {})
    assert not deferred.any()
    true = kb.vocabulary.true
    found = []
    for number in range(len(states)):
        own = lists.states[lists.owner == number] if made.ragged else lists.states[number][lists.mask[number]]
        actions = [tuple(tuple(atom) for atom in state if atom[0]) for state in own.tolist()]
        special = true if lists.proof[number] else true + 1 if not actions else true + 2
        found.append([*actions, ((special, *[0] * kb.vocabulary.arity),)])
    return found, lists.overflow.tolist()


def blank_rows(states, queries, histories, dtype):
    count = len(states)
    history = torch.zeros(count, MAX_DEPTH + 1, dtype=torch.int64)
    for number, hashes in enumerate(histories):
        signed = [h - 2**64 if h >= 2**63 else h for h in hashes]
        history[number, : len(signed)] = torch.tensor(signed, dtype=torch.int64)
    off, zero = torch.zeros(count, dtype=torch.bool), torch.zeros(count, dtype=torch.int64)
    return Rows(
        current=states.to(dtype),
        excluded=queries.to(dtype),
        history=history,
        stored=torch.tensor([len(hashes) for hashes in histories]),
        depth=zero,
        done=off,
        success=off,
        log_prob=torch.zeros(count),
        ambiguous=off,
        actions=torch.full((count, MAX_DEPTH), -1, dtype=torch.int16),
        number=zero,
        value=torch.zeros(count, 0),
    )


def walks(resolver: Resolver, queries, episodes: int, seed: int):
    """(state, query, history) of random episodes."""
    rng, found = random.Random(seed), []
    for _ in range(episodes):
        query = rng.choice(queries)
        state, history = (query,), []
        for _ in range(resolver.max_depth):
            history.append(resolver.hash(state))
            found.append((state, query, list(history)))
            actions = [
                a for a in resolver.successors(state, query, history)[0] if a[0][0] <= resolver.predicates
            ]
            if not actions:
                break
            state = rng.choice(actions)
    return found


def against_oracle(kb, cases, path, resolver=None):
    """Cases in which lists or cuts differ."""
    resolver = resolver or resolver_of(kb)
    return unlike(kb, cases, path, [resolver.successors(*case) for case in cases])


def unlike(kb, cases, path, expected):
    """Cases in which lists or cuts are not those expected."""
    states, queries, histories = zip(*cases, strict=True)
    found, cut = expand(kb, states, queries, histories, path)
    return [
        case
        for case, new, over, right in zip(cases, found, cut, expected, strict=True)
        if (new, over) != right
    ]


EPISODES = {"kinship": 3, "countries": 40, "wide": 150}
"""Generators and their sizes."""
QUICK = {
    *(f"kinship={path}" for path in PATHS),
    *(f"{data}={path}" for data in EPISODES for path in EACH_WAY),
}


@pytest.fixture(scope="module")
def episodes():
    """By data: knowledge base, states of random episodes, and the oracle's lists."""
    known = {}

    def play(data):
        if data not in known:
            kb = KnowledgeBase.build(generate(data, EPISODES[data], 0, 0.2, 0))
            resolver = resolver_of(kb)
            cases = walks(resolver, [tuple(fact) for fact in kb.facts.tolist()], 12, seed=1)[:120]
            known[data] = kb, cases, [resolver.successors(*case) for case in cases]
        return known[data]

    return play


@pytest.mark.parametrize(
    ("data", "path"), tiered([(data, path) for data in EPISODES for path in PATHS], QUICK)
)
def test_lists_are_the_oracles_on_states_of_random_episodes(episodes, data, path):
    if PATHS[path].get("compile") and data == "wide":
        pytest.skip("the static budget makes rows wait there, which the runs of whole jobs test")
    kb, cases, expected = episodes(data)
    assert unlike(kb, cases, PATHS[path], expected) == []


@pytest.mark.workloads
@pytest.mark.parametrize("name", ["family", "countries_s3"])
def test_lists_are_the_oracles_on_episodes_of_real_data(set_up, real_data, name):
    kb = set_up({}, data=real_data(name)).kb
    resolver = resolver_of(kb)
    cases = walks(resolver, [tuple(fact) for fact in kb.facts.tolist()], 20, seed=2)
    expected = [resolver.successors(*case) for case in cases]
    for path in ("naive", "all", "native"):
        for start in range(0, len(cases), 64):
            piece = slice(start, start + 64)
            assert unlike(kb, cases[piece], PATHS[path], expected[piece]) == [], path


TERMS = st.integers(0, 4)
NAMES = st.sampled_from("pqr")
VARIABLES = st.sampled_from("XYZW")


@st.composite
def random_problems(draw):
    facts = draw(st.lists(st.tuples(NAMES, TERMS, TERMS), min_size=1, max_size=25))
    rules = []
    for _ in range(draw(st.integers(1, 5))):
        body = draw(st.lists(st.tuples(NAMES, VARIABLES, VARIABLES), min_size=1, max_size=3))
        bound = st.sampled_from(sorted({term for atom in body for term in atom[1:]}))
        rules.append(Rule((draw(NAMES), draw(bound), draw(bound)), tuple(body)))
    return Problem(tuple((p, f"c{a}", f"c{b}") for p, a, b in facts), (), (), tuple(rules))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_problems(), st.integers(0, 1000))
def test_lists_are_the_oracles_on_any_small_knowledge_base(problem, seed):
    kb = KnowledgeBase.build(problem)
    resolver = resolver_of(kb)
    goals = [tuple(fact) for fact in kb.facts.tolist()]
    cases = walks(resolver, goals, 6, seed)[:40]
    for path in (PATHS["naive"], PATHS["all"], PATHS["native"], PATHS["exact rules"]):
        assert against_oracle(kb, cases, path, resolver) == []


def ids(kb, *atoms):
    """Atoms from text: lower-case names are constants, V1 V2 ... variables."""
    constants = len(kb.vocabulary.constants)
    names = {**kb.vocabulary.constant_ids, **{f"V{number}": constants + number for number in range(1, 13)}}
    split = [(atom.partition("(")[0], *atom.partition("(")[2].rstrip(")").split(",")) for atom in atoms]
    return tuple((kb.vocabulary.predicate_ids[p], *(names[term] for term in terms)) for p, *terms in split)


NO_ATOM = (0, 0, 0)
EACH = pytest.mark.parametrize(
    "path", [PATHS["naive"], PATHS["all"], PATHS["native"]], ids=["naive", "all", "native"]
)


@EACH
def test_a_hole_left_by_pruning_is_closed(knowledge, path):
    kb = knowledge("f(a,b) g(a,c) p(b,a)", "h(X,Y) <- p(X,Y)")
    state = ids(kb, "p(V1,a)", "f(a,V1)", "g(V1,V2)")
    (found,), _ = expand(kb, [state], [NO_ATOM], [[]], path)
    assert found[0] == ids(kb, "g(b,V1)")


@EACH
def test_the_query_is_no_fact_of_its_own_episode(knowledge, path):
    kb = knowledge("f(a,b) f(b,a)", "f(X,Y) <- f(Y,X)")
    (query,) = ids(kb, "f(a,b)")
    found, _ = expand(kb, [(query,)], [query], [[]], path)
    assert found == [[resolver_of(kb).true]]  # by the rule and f(b,a), not by itself
    state = ids(kb, "f(b,V1)", "f(V1,b)")
    (found,), _ = expand(kb, [state], [query], [[]], path)
    assert ids(kb, "f(a,b)") in found  # left by resolving with f(b,a), and not pruned


@EACH
def test_a_proof_beyond_the_cap_is_found_and_cuts_are_counted(knowledge, path):
    sources = [f"s{number:03d}" for number in range(200)]
    facts = " ".join(f"f({name},t)" for name in sources)
    kb = knowledge(f"{facts} g(s199,t) k(t,t)", "h(X,Y) <- k(X,Y)")
    state = ids(kb, "f(V1,t)", "g(V1,t)")
    found, cut = expand(kb, [state], [NO_ATOM], [[]], path)
    assert (found, cut) == ([[resolver_of(kb).true]], [False])
    state = ids(kb, "f(V1,t)", "g(t,V1)")
    (found,), cut = expand(kb, [state], [NO_ATOM], [[]], path)
    assert (len(found), cut) == (120, [True])


@EACH
def test_of_equal_successors_the_first_stays_where_it_is(knowledge, path):
    kb = knowledge("p(a,b) q(a,c) r(a,c)", "h(X,Y) <- q(X,Y)\nh(X,Y) <- r(X,Y)\nh(X,Z) <- q(X,Z)")
    (found,), _ = expand(kb, [ids(kb, "h(b,a)")], [NO_ATOM], [[]], path)
    assert found[:-1] == [ids(kb, "q(b,a)"), ids(kb, "r(b,a)")]


@EACH
def test_a_variable_that_stands_twice_gets_one_value(knowledge, path):
    kb = knowledge("p(a,b) p(b,b) q(b,a)", "q(X,X) <- p(X,X)")
    states = [ids(kb, "p(V1,V1)", "q(V1,a)"), ids(kb, "q(V1,V2)", "q(V2,V1)")]
    (found, other), _ = expand(kb, states, [NO_ATOM] * 2, [[], []], path)
    assert found == [resolver_of(kb).true]  # V1 = b, and q(b,a) is a fact
    assert other[0] == ids(kb, "p(V1,V1)", "q(V1,V1)")


def test_states_that_differ_by_names_alone_are_one_state(knowledge):
    kb = knowledge("p(a,b)", "q(X,Y) <- p(X,Y)")
    constants = len(kb.vocabulary.constants)
    one, other = as_tensor([ids(kb, "p(V1,V2)", "q(V2,V1)")]), as_tensor([ids(kb, "p(V7,V3)", "q(V3,V7)")])
    assert torch.equal(canonical(one, constants), canonical(other, constants))
    different = as_tensor([ids(kb, "p(V1,V2)", "q(V1,V2)")])
    base = kb.vocabulary.base
    assert hash_states(canonical(one, constants), base) == hash_states(canonical(other, constants), base)
    assert hash_states(one, base) != hash_states(different, base)


@pytest.mark.parametrize("value", [0, 1, 2**63, 2**64 - 1, 0x123456789ABCDEF])
def test_hashes_are_splitmix64(value):
    assert mix_int(value) % 2**64 == mix(value)
    assert mix(0) == 0xE220A8397B1DCDAF  # the first output of the published generator for seed 0


@EACH
def test_cyclic_rules_end_by_the_loop_check(knowledge, path):
    kb = knowledge("p(a,b)", "q(X,Y) <- r(X,Y)\nr(X,Y) <- q(X,Y)")
    state, resolver = ids(kb, "q(a,b)"), resolver_of(kb)
    after = ids(kb, "r(a,b)")
    (found,), _ = expand(kb, [after], [state[0]], [[resolver.hash(state), resolver.hash(after)]], path)
    assert found == [resolver.false]


def test_three_arguments_are_resolved_as_well(problem):
    facts = "f(a,b,c) f(b,c,a) g(a,b,b)"
    rules = "h(X,Y,Z) <- f(X,Y,W), f(Y,W,Z)\nh(X,Y,Y) <- g(X,Y,Y)\ng(X,X,Y) <- f(X,Y,Y)"
    kb = KnowledgeBase.build(problem(facts, rules), 3)
    resolver = resolver_of(kb)
    goals = [
        (kb.vocabulary.predicate_ids[p], a, b, c)
        for p in "fgh"
        for a in (1, 2)
        for b in (2, 3)
        for c in (1, 2, 3)
    ]
    cases = walks(resolver, goals, 30, seed=3)
    for path in (PATHS["naive"], PATHS["all"]):
        assert against_oracle(kb, cases, path, resolver) == []


@EACH
def test_a_predicate_without_facts_or_rules_fails(knowledge, path):
    kb = knowledge("p(a,b)", "q(X,Y) <- unseen(X,Y)")
    (found,), _ = expand(kb, [ids(kb, "unseen(a,b)")], [NO_ATOM], [[]], path)
    assert found == [resolver_of(kb).false]


@EACH
def test_a_row_without_a_state_has_one_action(knowledge, path):
    kb = knowledge("p(a,b)", "q(X,Y) <- p(X,Y)")
    (found,), _ = expand(kb, [((0, 0, 0),)], [NO_ATOM], [[]], path)
    assert found == [resolver_of(kb).false]
