"""Corruptions depend on seed, mode and query alone, and are what the oracle draws."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.data.corruption import Corruptor, Source, digest
from perfsweep.workloads.prover.data.generator import generate
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase
from perfsweep.workloads.prover.oracle import resolution
from perfsweep.workloads.prover.variants import TOGGLES, arm

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
@pytest.mark.parametrize("bites", [(), (1, 2, 3), (64,), (5,) * 9])
def test_candidates_are_the_same_whoever_draws_them_and_in_whatever_bites(countries, level, bites):
    _, kb, queries = countries
    expected, sizes, _ = taken(kb, queries, "per_chunk", ())
    found, owners, _ = taken(kb, queries, level, bites)
    assert torch.equal(found, expected)
    assert torch.equal(owners, sizes)


@pytest.mark.parametrize("mode", ["head", "tail", "both"])
@pytest.mark.parametrize("count", [1, 4, 5, 1000, None])
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
            expected += resolution.corruptions(query, place, same, known, 3, kb.vocabulary.base, wanted)
    found, sizes, _ = taken(kb, queries, "all", (), mode, count)
    assert [tuple(atom) for atom in found.tolist()] == expected
    assert int(sizes.sum()) == len(expected)


def test_no_corruption_is_true_repeated_or_of_another_domain(countries):
    problem, kb, queries = countries
    known = {kb.vocabulary.encode(triple) for triple in (*problem.facts, *problem.valid, *problem.test)}
    found, sizes, _ = taken(kb, queries, "all", (), "head", None)
    start = 0
    for query, size in zip(queries.tolist(), sizes.tolist(), strict=True):
        own = [tuple(atom) for atom in found[start : start + size].tolist()]
        assert own[0] == tuple(query)
        assert len(set(own)) == size
        assert not known & set(own[1:])
        assert all(kb.domain[atom[1]] == kb.domain[query[1]] for atom in own)
        start += size


def test_a_longer_list_begins_with_a_shorter_one(countries):
    _, kb, queries = countries
    short, long = (taken(kb, queries[:1], "all", (), "head", count)[0] for count in (3, 9))
    assert torch.equal(long[:4], short)


def test_another_seed_or_mode_draws_others(countries):
    _, kb, queries = countries
    drawn = {
        digest(Corruptor(kb, mode, 5, seed).together(queries)) for mode in ("head", "both") for seed in (0, 1)
    }
    assert len(drawn) == 4


@pytest.mark.parametrize(("level", "draws"), [("per_chunk", 16), ("all", 1), ("stream", 1)])
def test_vectorised_draws_are_few(countries, level, draws):
    _, kb, queries = countries
    queries = queries.repeat(3, 1)[:16]
    assert taken(kb, queries, level, (4, 4))[2] == draws


def test_streaming_draws_one_block_ahead_and_no_more(countries):
    _, kb, queries = countries
    corruptor = Corruptor(kb, "head", 3, 0)
    source = source_of(corruptor, queries.repeat(20, 1)[:100], "stream")
    source.take(10)
    assert corruptor.batches == 2


def test_a_query_set_without_any_corruption_is_refused(solve, tmp_path):
    (tmp_path / "train.txt").write_text("f(a,b).\nf(b,a).")
    (tmp_path / "test.txt").write_text("g(a,b)")
    (tmp_path / "rules.txt").write_text("r:1:f(x,y) -> g(x,y)")
    (tmp_path / "domain2constants.txt").write_text("one a\ntwo b")
    with pytest.raises(ConfigError, match="no query has a valid corruption"):
        solve({}, data=str(tmp_path))
