"""What `evaluate` and `derive` of the library do with any shape of knowledge base: path and results."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import random

import numpy as np
import pytest
import yaml
from documented import ROOT

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover import derive, evaluate, oracle, policy_from_state_dict, random_policy
from perfsweep.workloads.prover.data.formats import Problem, Rule
from perfsweep.workloads.prover.data.generator import generate
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase
from perfsweep.workloads.prover.training import resolver_of

NAMES = ("e0", "e1", "e2", "e3")


def conjunction(arity: int, length: int) -> Problem:
    """``h <- b0, b1 ...`` holds of 0 and 1 at once, of 2 by one more rule, of 3 not at all."""
    tuples = [tuple(NAMES[(first + place) % 4] for place in range(arity)) for first in range(4)]
    variables, last = ("W", "X", "Y", "Z")[:arity], f"b{length - 1}"
    facts = [(f"b{part}", *tuples[of]) for part in range(length) for of in (0, 1)]
    facts += [(f"b{part}", *tuples[2]) for part in range(length - 1)] + [("c", *tuples[2])]
    body = tuple((f"b{part}", *variables) for part in range(length))
    rules = (Rule(("h", *variables), body), Rule((last, *variables), (("c", *variables),)))
    asked = tuple(("h", *names) for names in tuples)
    return Problem(tuple(facts), (), asked, rules, {"all": (*NAMES, "e4")})


@pytest.mark.parametrize("length", [1, 6, 10, 11])
@pytest.mark.parametrize("arity", [1, 2, 4])
def test_any_number_of_arguments_and_any_body_is_evaluated_by_a_path_that_can(arity, length):
    kb = conjunction(arity, length)
    policy = random_policy(kb, 8, 8, 1, arity=arity)
    ranks, _ = evaluate(kb, kb.test, policy, modes=("head",), corruptions=None)
    kernel = "native" if arity == 2 and length <= 10 else "torch"
    assert f"expand_kernel={kernel}" in ranks.toggles and "fact_index=csr" in ranks.toggles
    known = KnowledgeBase.build(kb, arity)
    weights = {name: one.double().numpy() for name, one in policy.weights_for(known.vocabulary).items()}
    scorer, resolver = oracle.Scorer(weights, 1), resolver_of(known)
    played = [oracle.play(resolver, scorer, tuple(atom)) for atom in ranks.candidate.tolist()]
    assert ranks.success.tolist() == [episode.success for episode in played]
    assert ranks.depth.tolist() == [episode.depth for episode in played]
    assert ranks.score == pytest.approx([oracle.score(episode) for episode in played], abs=1e-4)
    assert [found.depth for found in derive(kb, kb.test)] == [1, 1, 2, None]


def test_a_rule_without_a_body_is_refused():
    with pytest.raises(ConfigError, match="has an empty body; write what always holds as facts"):
        dataclasses.replace(conjunction(2, 1), rules=(Rule(("h", "X", "Y"), ()),))


def test_fewer_tables_than_arguments_are_refused_by_the_tensor_that_is_missing():
    kb, names = conjunction(3, 1), ("b0", "c", "h")
    with pytest.raises(ConfigError, match=r"^arity=2: an atom of the data has 3 arguments; use arity=3$"):
        random_policy(kb, 8, 8, 1, arity=2)
    tensors = dict(random_policy(kb, 8, 8, 1).tensors)
    del tensors["arguments.2.weight"]
    tensors |= {f"arguments.{place}.weight": tensors[f"arguments.{place}.weight"][:18] for place in (0, 1)}
    policy = policy_from_state_dict(tensors, names, (*NAMES, "e4"))
    with pytest.raises(ConfigError, match=r"there is no tensor arguments\.2\.weight") as refusal:
        evaluate(kb, kb.test, policy)
    assert "toggles" not in str(refusal.value)


def test_what_is_not_said_is_as_documented():
    def said(call):
        parameters = inspect.signature(call).parameters.values()
        return [one.default for one in parameters if one.default is not one.empty]

    assert said(evaluate) == [("both",), 100, 0, 256, False, "cpu"]
    assert (said(derive), said(random_policy)) == ([20, 100_000, 6], [250, 256, 8, 0, None])


@pytest.fixture(scope="module")
def kinship():
    kb = generate("kinship", 2, 0, 0.2, 0)
    return kb, random_policy(kb, 32, 32, 2)


def test_evaluation_runs_the_path_that_the_headline_measures_and_says_which(kinship):
    kb, policy = kinship
    headline = yaml.safe_load((ROOT / "conf/sweep/prover/headline.yaml").read_text())["sweep"]
    arms = headline["designs"][0]["arms"]
    for arm, screen16 in (("float32", False), ("screened", True)):
        ranks, _ = evaluate(kb, kb.test[:2], policy, corruptions=4, screen16=screen16)
        run = dict(level.split("=") for level in ranks.toggles)
        assert arms[arm].items() <= {**run, "slab_size": int(run["slab_size"])}.items()
        assert run["screen16"] == ("on" if screen16 else "off")


def test_scoring_in_bfloat16_first_chooses_the_same_or_is_refused(kinship):
    kb, policy = kinship
    found = [evaluate(kb, kb.test[:4], policy, corruptions=6, screen16=on)[0] for on in (False, True)]
    for name in ("rank", "success", "depth"):
        assert np.array_equal(getattr(found[0], name), getattr(found[1], name))
    loud = {name: one * 50 if name.startswith("out.") else one for name, one in policy.tensors.items()}
    with pytest.raises(ConfigError, match="screen16=True: bfloat16 is too coarse"):
        evaluate(kb, kb.test[:4], dataclasses.replace(policy, tensors=loud), corruptions=6, screen16=True)


def closure(kb: Problem, query: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Everything that follows from the facts but the query, by trying all names for all variables."""
    true = set(kb.facts) - {query}
    while True:
        new = set()
        for rule in kb.rules:
            variables = list(rule.variables)
            for names in itertools.product(NAMES, repeat=len(variables)):
                value = dict(zip(variables, names, strict=True))
                atoms = [(p, *(value[term] for term in terms)) for p, *terms in rule.atoms]
                if all(atom in true for atom in atoms[1:]):
                    new.add(atoms[0])
        if new <= true:
            return true
        true |= new


@pytest.mark.parametrize("seed", range(2))
def test_what_is_derived_is_what_follows_from_the_facts_by_the_rules(seed):
    """Layers of relations, so that every search ends; terms of rules are drawn, repeated ones too."""
    rng = random.Random(seed)
    arity = {"p": 1, "q": 2, "r": 3, "s": 2, "t": 1}

    def atom(name, terms):
        return (name, *(rng.choice(terms) for _ in range(arity[name])))

    facts = {atom(name, NAMES) for name in "pqrs" for _ in range(4)}
    rules = []
    for head, below in (("s", "pqr"), ("s", "pq"), ("t", "sqr"), ("t", "sp")):
        body = tuple(atom(name, "XYZ") for name in rng.sample(below, 2))
        bound = [term for one in body for term in one[1:]]
        rules.append(Rule(atom(head, bound), body))
    kb = Problem(tuple(sorted(facts)), (), (), tuple(rules), {"all": NAMES})
    asked = [(name, *names) for name in "st" for names in itertools.product(NAMES, repeat=arity[name])]
    found = derive(kb, asked, atoms=None)
    assert all(one.complete for one in found)
    assert [one.depth is not None for one in found] == [query in closure(kb, query) for query in asked]
    assert {one.depth is None for one in found} == {True, False}


def test_a_derivation_shows_its_goals_and_says_where_it_was_cut_off(problem):
    kb = problem(
        "edge(a,b) edge(b,c) edge(c,d)", "reach(X,Y) <- edge(X,Y)\nreach(X,Z) <- edge(X,Y), reach(Y,Z)"
    )
    query = ("reach", "a", "c")
    (found,) = derive(kb, [query])
    assert str(found) == "reach(a,c)\nedge(a,X1), reach(X1,c)\nreach(b,c)\nTRUE"
    assert (found.query, found.depth, found.complete) == ("reach(a,c)", 3, True)
    (short,), (cut,) = derive(kb, [query], depth=2), derive(kb, [query], states=1)
    assert (short.depth, short.states, short.complete) == (None, (), True)
    assert (cut.depth, cut.states, cut.complete) == (None, (), False)


def test_a_query_that_is_a_fact_is_no_step_of_its_own_proof(problem):
    kb = problem(
        "f(a,b) g(a,b) f(b,a)", "f(X,Y) <- g(X,Y), f(X,Y)\nh(X,Y) <- f(X,Y)\nf(X,Y) <- h(Y,X), f(Y,X)"
    )
    found = derive(kb, [("f", "a", "b"), ("h", "a", "b"), ("f", "b", "a")])
    assert [(one.depth, one.complete) for one in found] == [(2, True), (1, True), (2, True)]


@pytest.mark.parametrize("limit", [{"depth": 0}, {"states": 1.5}, {"atoms": True}])
def test_a_limit_that_is_none_is_named(problem, limit):
    kb = problem("f(a,b)", "g(X,Y) <- f(X,Y)")
    ((name, value),) = limit.items()
    with pytest.raises(ConfigError, match=rf"^{name}={value}: is out of range; give a whole number from 1$"):
        derive(kb, [("g", "a", "b")], **limit)
    with pytest.raises(ConfigError, match=r"derive: query 0.*names 'z'"):
        derive(kb, [("g", "a", "z")])


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"slab_size": 0}, "^slab_size=0: is out of range; give a whole number from 1$"),
        ({"modes": "head"}, r"^modes='head': is one name; give a list, modes=\['head'\]$"),
        ({"modes": ["up"]}, "modes=up cannot be used: it must be a list of: head, tail, both"),
        ({"device": "gpu"}, "^device='gpu': is not here; give device='cpu'$"),
    ],
)
def test_an_option_out_of_range_is_named(kinship, option, says):
    kb, policy = kinship
    with pytest.raises(ConfigError, match=says):
        evaluate(kb, kb.test[:1], policy, **option)
