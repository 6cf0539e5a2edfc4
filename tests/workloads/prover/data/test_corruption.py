"""Corruptions depend on seed, mode and query alone, and are what the oracle draws."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.prover import oracle
from perfsweep.workloads.prover.data.corruption import Corruptor, Source
from perfsweep.workloads.prover.data.generator import generate
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase
from perfsweep.workloads.prover.variants import TOGGLES, arm
from perfsweep.workloads.prover.variants.candidates import BLOCK

BASE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}


@pytest.fixture(scope="module")
def countries():
    problem = generate("countries", 40, 0, 0.2, 0)
    kb = KnowledgeBase.build(problem)
    return (
        problem,
        kb,
        torch.tensor([kb.vocabulary.encode(triple) for triple in (*problem.test, *problem.valid)]),
    )


def source_of(corruptor, queries, level):
    """Candidates as a level of the toggle draws them."""
    drawn = arm({**BASE, "corruptions": level}).draws(None, corruptor, queries)  # type: ignore[arg-type]
    return Source(drawn, queries[:0])


def taken(kb, queries, level, bites, mode="both", count: int | None = 7, seed=3):
    corruptor = Corruptor(kb, mode, count, seed)
    source = source_of(corruptor, queries, level)
    parts = [source.take(bite) for bite in bites]
    parts.append(source.take(None))
    atoms, numbers = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
    assert numbers.tolist() == list(range(len(numbers)))
    return atoms, source.owners, corruptor.batches


@pytest.mark.parametrize("level", ["per_chunk", "all", "stream"])
@pytest.mark.parametrize("bites", [(), (5,) * 9])
def test_candidates_are_the_same_whoever_draws_them_and_in_whatever_bites(countries, level, bites):
    _, kb, queries = countries
    expected, sizes, _ = taken(kb, queries, "per_chunk", ())
    found, owners, _ = taken(kb, queries, level, bites)
    assert torch.equal(found, expected)
    assert torch.equal(owners, sizes)


@pytest.mark.parametrize("mode", ["head", "tail", "both"])
@pytest.mark.parametrize("count", [5, 1000, None])
def test_corruptions_are_the_oracles(countries, mode, count):
    problem, kb, queries = countries
    known = {kb.vocabulary.encode(triple) for triple in (*problem.facts, *problem.valid, *problem.test)}
    domain = kb.domain.tolist()
    parts = {
        "head": [(0, count)],
        "tail": [(1, count)],
        "both": [(0, count and (count + 1) // 2), (1, count and count // 2)],
    }
    expected = []
    for query in map(tuple, queries.tolist()):
        expected.append(query)
        for place, wanted in parts[mode]:
            same = [e for e in range(1, len(domain)) if domain[e] == domain[query[1 + place]]]
            expected += oracle.corruptions(query, place, same, known, 3, kb.vocabulary.base, wanted)
    found, sizes, _ = taken(kb, queries, "all", (), mode, count)
    assert [tuple(atom) for atom in found.tolist()] == expected
    assert int(sizes.sum()) == len(expected)


def test_streaming_draws_one_block_ahead_and_no_more(countries):
    _, kb, queries = countries
    corruptor = Corruptor(kb, "head", 3, 0)
    source = source_of(corruptor, queries.repeat(20, 1)[:100], "stream")
    source.take(10)
    assert corruptor.batches == 2
    assert len(source.take(None)[0]) == int(source.owners.sum()) - 10
    assert (BLOCK, corruptor.batches) == (16, 7)  # the last of four
