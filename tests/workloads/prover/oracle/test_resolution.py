"""`perfsweep.workloads.prover.oracle.resolution` at fixed points known before: proof depths, own data."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from perfsweep.workloads.prover.data.formats import read_problem
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase
from perfsweep.workloads.prover.training.imitation import resolver_of


def stated_depths(folder: str, kb: KnowledgeBase) -> dict[tuple[int, ...], int]:
    depths = {}
    for line in (Path(folder) / "test_depths.txt").read_text().splitlines():
        written, _, depth = line.rpartition(" ")
        relation, _, rest = written.rstrip(".").partition("(")
        depths[kb.vocabulary.encode((relation, *rest.rstrip(")").rsplit(",", 1)))] = int(depth)
    return depths


def test_proofs_of_countries_are_as_deep_as_the_data_set_says(real_data):
    folder = real_data("countries_s3")
    kb = KnowledgeBase.build(read_problem(Path(folder)))
    stated, resolver = stated_depths(folder, kb), resolver_of(kb)
    assert {query: resolver.shortest(query) for query in stated} == stated
    assert Counter(stated.values()) == {2: 1, 3: 18, 5: 3, 6: 1, 9: 1}


@pytest.mark.workloads
def test_proofs_of_family_are_as_deep_as_they_follow_from_its_rules(real_data):
    """Depths 1 and 2 are as stated; entries 4 and -1 do not follow from the rules."""
    folder = real_data("family")
    kb = KnowledgeBase.build(read_problem(Path(folder)))
    stated, resolver = dict([*stated_depths(folder, kb).items()][::40]), resolver_of(kb)
    found = {query: resolver.shortest(query, limit=3) for query in stated}
    assert all(found[query] == depth for query, depth in stated.items() if depth in (1, 2))
    assert Counter(found.values()) == {1: 8, 2: 119, 3: 7, None: 7}


@pytest.mark.parametrize(
    ("query", "depth"),
    [
        (("reach", "a", "b"), 2),
        (("reach", "a", "c"), 3),
        (("reach", "a", "d"), 4),
        (("reach", "d", "a"), None),
        (("edge", "a", "b"), None),
    ],
)
def test_the_shortest_proof_of_a_path_counts_its_edges_and_the_end(knowledge, query, depth):
    kb = knowledge(
        "edge(a,b) edge(b,c) edge(c,d)", "reach(X,Y) <- edge(X,Y)\nreach(X,Z) <- edge(X,Y), reach(Y,Z)"
    )
    # One step takes the rule; its edges are facts once variables are bound; the last is the forced TRUE.
    found = resolver_of(kb).shortest(kb.vocabulary.encode(query))
    assert (found is None) == (depth is None)
    if depth is not None:
        assert found == breadth_first(kb, query)


def breadth_first(kb, query):
    """Actions by an own search: the rule for one edge proves at once, further edges take rule and fact."""
    names = kb.vocabulary
    edges = {(a, b) for p, a, b in kb.facts.tolist() if p == names.predicate_ids["edge"]}
    start, goal = names.constant_ids[query[1]], names.constant_ids[query[2]]
    layer, length = {start}, 0
    while goal not in layer:
        layer, length = {b for a, b in edges if a in layer}, length + 1
    return 2 * length - 1


def test_countries_and_kinship_queries_have_proofs(set_up):
    for data, share in (
        ({"data": "kinship", "queries": None}, 0.6),
        ({"data": "countries", "size": 60, "queries": None}, 0.5),
    ):
        workload = set_up({}, **data)
        resolver = resolver_of(workload.kb)
        proved = [resolver.shortest(tuple(query), 4) is not None for query in workload.queries.tolist()]
        assert sum(proved) / len(proved) > share
