"""In and out: weights from a file, what is kept of a job, evaluation from Python, and the page about them."""

from __future__ import annotations

import ast
import json
import re

import numpy as np
import pytest
import torch
from documented import ROOT, blocks, execute
from tables.prover import BEST

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover import (
    evaluate,
    policy_from_state_dict,
    random_policy,
    read_policy,
    save_policy,
)
from perfsweep.workloads.prover.data.generator import generate
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase
from perfsweep.workloads.prover.maths.episodes import ranked, scores
from perfsweep.workloads.prover.maths.policy import Policy, PolicyShape, make_weights
from perfsweep.workloads.prover.ranking import Ranks
from perfsweep.workloads.prover.training import lessons, resolver_of, trained

FAST = {**BEST, "slab_size": 16}
ASKED = {"data": "countries", "size": 40, "modes": "head,tail", "queries": 4, "corruptions": 5}


@pytest.fixture(scope="module")
def known():
    return {}


@pytest.fixture
def kept(solve, known, tmp_path_factory):
    """A finished job and the folder that it was kept in."""
    if not known:
        known["workload"] = workload = solve(FAST, kind="timing", **ASKED)
        known["folder"] = tmp_path_factory.mktemp("kept")
        workload.keep(known["folder"])
    return known["workload"], known["folder"]


def test_ranks_are_kept_with_names_and_every_candidate(kept):
    workload, folder = kept
    found = np.load(folder / "ranks.npz")  # without pickles: anybody's numpy reads it
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.json", "policy.pt", "ranks.npz"]
    assert found["mode"].tolist() == ["head", "tail"]
    queries = list(dict.fromkeys(found["query"]))
    assert len(queries) == 4
    names = {f"{relation}({a},{b})" for relation, a, b in workload.config.problem.test}
    assert set(queries) <= names
    start = 0
    for number, mode in enumerate(found["mode"]):
        result = workload.job.results[mode]
        assert found["rank"][number].tolist() == ranked(result.outcome, result.sizes).rank.tolist()
        assert found["sizes"][number].tolist() == result.sizes.tolist()
        part = slice(start, start := start + int(result.sizes.sum()))
        assert found["score"][part].tolist() == scores(result.outcome).tolist()
        for name in ("success", "depth"):
            assert found[name][part].tolist() == result.outcome[name].tolist()
    assert start == len(found["candidate"]) == workload.progress()


def test_the_kept_candidates_are_those_that_were_ranked(kept):
    """Each query stands first among its own, and only the argument of the mode is replaced."""
    found = np.load(kept[1] / "ranks.npz")
    start = 0
    for mode, sizes in zip(found["mode"], found["sizes"], strict=True):
        for query, size in zip(found["query"], sizes, strict=True):
            own, *corrupted = found["candidate"][start : start + size].tolist()
            p, a, b = own
            text = f"{found['predicates'][p - 1]}({found['constants'][a - 1]},{found['constants'][b - 1]})"
            assert text == query
            same = [2, 0] if mode == "head" else [1, 0]
            assert all(
                [atom[i] for i in same] == [own[i] for i in same] and atom != own for atom in corrupted
            )
            start += size


def test_metrics_are_kept_and_are_the_numbers_of_every_trial(kept):
    workload, folder = kept
    summary = json.loads((folder / "metrics.json").read_text())
    numbers = workload.numbers()
    rank = np.load(folder / "ranks.npz")["rank"]
    names = ("mrr", "hits1", "hits3", "hits10")
    by_hand = [np.mean(1 / rank), *(np.mean(rank <= k) for k in (1, 3, 10))]
    assert [summary.pop(name) for name in names] == pytest.approx(by_hand)
    assert [numbers[name] for name in names] == pytest.approx(by_hand)
    modes = summary.pop("modes")
    assert modes.keys() == {"head", "tail"} and modes["tail"]["mrr"] == pytest.approx(np.mean(1 / rank[1]))
    outcomes = [result.outcome for result in workload.job.results.values()]
    assert summary == {
        "queries": 4,
        "candidates": workload.progress(),
        "proved": sum(int(outcome["success"].sum()) for outcome in outcomes),
        "ambiguous_candidates": sum(int(outcome["ambiguous"].sum()) for outcome in outcomes),
    }


def test_a_kept_policy_is_taken_up_again(kept, solve):
    workload, folder = kept
    again = solve(FAST, kind="timing", weights=str(folder / "policy.pt"), **ASKED)
    assert again.data_digest() == workload.data_digest()
    for mode in ("head", "tail"):
        one, other = again.job.results[mode].outcome, workload.job.results[mode].outcome
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_training_goes_on_from_given_weights(set_up, tmp_path):
    given = {"data": "countries", "size": 8, "weights": str(tmp_path / "policy.pt")}
    save_policy(random_policy(generate("countries", 8, 0, 0.2, 0), 32, 32, 2, seed=5), tmp_path / "policy.pt")
    first, taught = (set_up(FAST, **given, imitation=passes).weights["out.weight"] for passes in (0, 1))
    assert 0 < (taught - first).norm() < first.norm() / 10


def test_lessons_are_the_choices_of_shortest_proofs_of_four_actions_at_most(problem):
    rules = "r(X,Y) <- p(X,Y)\nr(X,Z) <- p(X,Y), r(Y,Z)\nr(X,Y) <- r(Y,X)"
    kb = KnowledgeBase.build(problem("p(a,b) p(b,c) p(c,d)", rules))
    ca, ac, pair, bc, end = ((2, 3, 1),), ((2, 1, 3),), ((1, 1, 5), (2, 5, 3)), ((2, 2, 3),), ((5, 0, 0),)
    found = lessons(resolver_of(kb), [(2, 1, 4), (2, 3, 1)])  # from a to d are five
    assert found == [
        (ca, [((1, 3, 1),), ((1, 3, 5), (2, 5, 1)), ac, end], 2),
        (ac, [((1, 1, 3),), pair, end], 1),  # and not back
        (pair, [bc, end], 0),
    ]


def test_training_leaves_padding_zero_in_every_table(problem, tmp_path):
    """Also in those of a third argument, which relations of two leave out."""
    kb = KnowledgeBase.build(
        problem("f(a,b) f(b,c) f(a,c) f(c,d) g(a,c,b)", "f(X,Y) <- f(X,Z), f(Z,Y)\nf(X,Y) <- g(X,Y,Z)"), 3
    )
    shape = PolicyShape(8, 8, 1)
    before = make_weights(shape, kb.vocabulary, 0)
    after = trained(kb, before, shape, 1, tmp_path / "policy.pt")
    assert float((after["P"] - before["P"]).abs().max()) == pytest.approx(1e-3, rel=1e-2)  # Adam's first step
    kept = trained(kb, {}, shape, 1, tmp_path / "policy.pt")
    assert all(torch.equal(kept[name], after[name]) for name in before)
    assert not any(after[name][0].any() for name in ("P", "U", "V", "V2"))


def test_evaluation_from_python_is_that_of_the_workload(kept):
    workload, folder = kept
    kb = workload.config.problem
    queries = [
        triple
        for text in np.load(folder / "ranks.npz")["query"]
        for triple in kb.test
        if _text(triple) == text
    ]
    policy = read_policy(folder / "policy.pt")
    ranks, _ = evaluate(kb, queries, policy, modes=("head", "tail"), corruptions=5, slab_size=7)
    saved = np.load(folder / "ranks.npz")
    assert {*saved} == {*Ranks.__annotations__}
    for name in ("rank", "sizes", "candidate", "success", "depth"):
        assert np.array_equal(getattr(ranks, name), saved[name]), name
    assert ranks.metrics.items() <= workload.numbers().items()


def _text(triple):
    return f"{triple[0]}({','.join(triple[1:])})"


def test_a_proof_is_a_walk_that_the_rules_allow(problem):
    """One step by hand: the rule, then TRUE, for the remaining goal is pruned as a fact."""
    kb = problem("parent(a,b) parent(b,c) parent(c,d)", "elder(X,Y) <- parent(X,Z), parent(Z,Y)")
    queries = [("elder", "a", "c"), ("elder", "d", "a")]
    found = set()
    for seed in range(6):
        _, (proof, other) = evaluate(kb, queries, random_policy(kb, 8, 8, 1, seed), corruptions=2)
        found.add((proof.proved, *proof.states))
        assert not other.proved
        assert other.states[-1] in ("FALSE", "END")
    proved, gave_up = (True, "elder(a,c)", "parent(a,X1), parent(X1,c)", "TRUE"), (False, "elder(a,c)", "END")
    assert found == {proved, gave_up}


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (("cousin", "a", "b"), "query 0.*does not begin with a relation"),
        ("parent(a,b)", "query 0.*does not begin with a relation"),
        (("parent", "a"), "query 0.*should have 2 arguments"),
        (("parent", "a", "zoe"), "query 0.*names 'zoe'"),
    ],
)
def test_a_query_that_cannot_be_asked_is_named(problem, query, says):
    kb = problem("parent(a,b) parent(b,c)", "elder(X,Y) <- parent(X,Y)")
    with pytest.raises(ConfigError, match=says):
        evaluate(kb, [query], random_policy(kb, 8, 8, 1))
    with pytest.raises(ConfigError, match="there are no queries"):
        evaluate(kb, [], random_policy(kb, 8, 8, 1))


@pytest.mark.workloads
def test_the_page_can_be_followed_from_top_to_bottom(tmp_path):
    printed = {}
    for block in blocks(ROOT / "docs/prover.md"):
        if block.file:
            (tmp_path / block.file).write_text(block.text)
            printed[block.file] = execute(["python", block.file], tmp_path)
        elif block.language == "sh":
            (command,) = block.commands
            printed["run"] = execute(command, tmp_path)
    assert list(printed) == ["family.py", "run", "ranks.py", "network.py"]
    assert "kept in" in printed["run"] and "mrr" in printed["run"]
    by_command = re.search(r"mrr (\S+),", printed["run"])[1]
    by_library = ast.literal_eval(printed["ranks.py"].splitlines()[0])
    assert by_library["mrr"] == pytest.approx(float(by_command), rel=1e-5)
    assert "elder(ann,dan)" in "".join(printed.values())


def test_the_network_of_the_page_is_the_network():
    """Its values and logits are those of the workload's policy with the same tensors."""
    page = next(block.text for block in blocks(ROOT / "docs/prover.md") if block.file == "network.py")
    named = {}
    exec(page.partition("\nkb = ")[0], named)
    kb = generate("kinship", 2, 0, 0.2, 0)
    base = KnowledgeBase.build(kb)
    network = named["ProofPolicy"](len(kb.predicates), len(kb.constants))
    for layer in network.trunk:
        torch.nn.init.normal_(layer.norm.weight)
        torch.nn.init.normal_(layer.norm.bias)
    policy = policy_from_state_dict(network.state_dict(), kb.predicates, kb.constants)
    own = Policy(policy.weights_for(base.vocabulary), policy.shape)
    states = torch.zeros(30, 6, 3, dtype=torch.int64)
    states[:, 0], states[:, 1] = base.facts[:30], base.facts[30:60]
    with torch.no_grad():
        assert torch.allclose(network.value(states), own.values(states), atol=1e-5)
        values = own.values(states)
        keys, offset = own.keys(values[:1])
        logits = own.dots(values, keys, offset, torch.zeros(30, dtype=torch.int64))
        assert torch.allclose(network.logits(states[0], states), logits, atol=1e-4)


def test_nothing_is_kept_of_a_job_that_has_not_ended_or_where_nothing_can_be_written(kept, set_up, tmp_path):
    with pytest.raises(ConfigError, match=r"keep: the job has not ended"):
        set_up(FAST, **ASKED).keep(tmp_path)
    with pytest.raises(ConfigError, match=r"keep=.*nowhere: cannot be written"):
        kept[0].keep(tmp_path / "nowhere")
