"""`perfsweep.workloads.prover.oracle` at fixed points known before: proof depths, own data."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from perfsweep.workloads.prover import oracle
from perfsweep.workloads.prover.data.formats import read_problem
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase
from perfsweep.workloads.prover.training import resolver_of


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
        (("reach", "a", "b"), 1),
        (("reach", "a", "c"), 3),
        (("reach", "a", "d"), 5),
        (("reach", "d", "a"), None),
        (("edge", "a", "b"), None),
    ],
)
def test_the_shortest_proof_of_a_path_counts_its_edges_and_the_end(knowledge, query, depth):
    kb = knowledge(
        "edge(a,b) edge(b,c) edge(c,d)", "reach(X,Y) <- edge(X,Y)\nreach(X,Z) <- edge(X,Y), reach(Y,Z)"
    )
    # The rule for one edge proves at once; each further edge takes rule and fact.
    assert resolver_of(kb).shortest(kb.vocabulary.encode(query)) == depth


def test_the_oracle_replaces_one_argument_by_what_is_neither_known_nor_the_query_itself():
    def drawn(count, place=0):
        known = {(1, 2, 1), (1, 4, 1), (1, 1, 2)}
        return oracle.corruptions((1, 2, 1), place, range(6, 0, -1), known, 0, 20, count)

    assert drawn(None) == [(1, 1, 1), (1, 3, 1), (1, 5, 1), (1, 6, 1)]
    assert drawn(None, place=1) == [(1, 2, number) for number in (2, 3, 4, 5, 6)]
    assert sorted(drawn(9)) == drawn(None) != drawn(9)  # in the order of their keys
    assert [drawn(count) for count in (1, 3)] == [drawn(9)[:1], drawn(9)[:3]]


def test_countries_and_kinship_queries_have_proofs(set_up):
    for data, share in (
        ({"data": "kinship", "queries": None}, 0.6),
        ({"data": "countries", "size": 60, "queries": None}, 0.5),
    ):
        workload = set_up({}, **data)
        resolver = resolver_of(workload.kb)
        proved = [resolver.shortest(tuple(query), 4) is not None for query in workload.queries.tolist()]
        assert sum(proved) / len(proved) > share
