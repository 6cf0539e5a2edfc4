"""Generated knowledge bases: the same for a seed, closed, typed, and as large as they should be."""

from __future__ import annotations

import hashlib
import random

import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.data.generator import (
    KINSHIP_RULES,
    generate,
    grow_clan,
    kinship,
    parsed_rules,
    relations_of,
    wide,
)
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase


@pytest.mark.parametrize(
    ("name", "size", "digest"),
    [
        *(("kinship", 3, "2cdad5ad"), ("countries", 40, "34c57334"), ("wide", 30, "abd74482")),
        *(("countries", 7, "a6b63928"), ("wide", 7, "8b9e434e")),  # as of eight
    ],
)
def test_a_seed_decides_everything_and_the_same_in_every_version(name, size, digest):
    one, same, other = (generate(name, size, seed, 0.2, 2) for seed in (1, 1, 2))
    assert one == same
    assert one != other
    assert hashlib.sha256(repr(one).encode()).hexdigest()[:8] == digest  # results of sweeps are of these data


@pytest.mark.parametrize("seed", range(5))
def test_rules_of_kinship_are_true_and_relations_closed(seed):
    clan = grow_clan(random.Random(seed), "")
    relations = relations_of(clan)
    assert 25 <= len(clan.male) <= 60
    for rule in parsed_rules(KINSHIP_RULES):
        for a, b in bindings(rule, relations):
            # Half-siblings do not occur, but everybody's brother's brother may be himself.
            assert (a, b) in relations[rule.head[0]] or a == b, rule


@pytest.mark.parametrize("seed", range(3))
def test_a_relation_of_kinship_holds_of_all_whom_sex_parents_and_marriages_make_it_true(seed):
    clan = grow_clan(random.Random(seed), "")
    people, parents, male = [*clan.male], clan.parents, clan.male

    def siblings(a, b):
        return a != b and a in parents and parents[a] == parents.get(b)

    def nibling(a, b):
        return any(siblings(one, b) for one in parents.get(a, ()))

    true = {
        ("father", "mother"): lambda a, b: a in parents.get(b, ()),
        ("son", "daughter"): lambda a, b: b in parents.get(a, ()),
        ("brother", "sister"): siblings,
        ("husband", "wife"): lambda a, b: {(a, b), (b, a)} & {*clan.couples},
        ("uncle", "aunt"): lambda a, b: nibling(b, a),
        ("nephew", "niece"): nibling,
    }
    pairs = [(a, b) for a in people for b in people]
    expected = {
        name: {(a, b) for a, b in pairs if male[a] == (names[0] == name) and holds(a, b)}
        for names, holds in true.items()
        for name in names
    }
    assert relations_of(clan) == expected
    assert all(expected.values())
    assert all(male[father] and not male[mother] for father, mother in (*clan.couples, *parents.values()))


def bindings(rule, relations):
    partial = [{}]
    for relation, x, y in rule.body:
        partial = [
            {**found, x: a, y: b}
            for found in partial
            for a, b in relations[relation]
            if found.get(x, a) == a and found.get(y, b) == b
        ]
    return {(found[rule.head[1]], found[rule.head[2]]) for found in partial}


def test_nothing_hidden_is_a_fact_and_everybody_asked_about_is_known():
    problem = kinship(3)
    facts = set(problem.facts)
    assert problem.test
    assert not facts & {*problem.test, *problem.valid}
    assert {name for triple in problem.test for name in triple[1:]} <= set(problem.constants)


def test_wide_has_lists_beyond_the_cap_and_loses_no_fact(solve):
    problem = wide(300)
    assert len(KnowledgeBase.build(problem).facts) == len(problem.facts)
    degrees = [sum(fact[2] == name for fact in problem.facts) for name in ("e0", "e1", "e2")]
    assert degrees[0] > 250
    lists = {"fact_index": "csr", "pack_width": "tight", "policy_rows": "ragged"}
    assert solve(lists, data="wide", size=300, queries=8, corruptions=4).counters()["overflow"] > 0


def test_a_generator_that_leaves_no_query_says_so(set_up):
    with pytest.raises(ConfigError, match="leaves no test query"):
        set_up({}, size=1, hide=1e-9)
