"""Atoms and states as people read them, means over modes, walks, and what is kept of a job."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perfsweep.workloads.prover import evaluate, random_policy
from perfsweep.workloads.prover.data.knowledge import Vocabulary
from perfsweep.workloads.prover.oracle.resolution import Resolver
from perfsweep.workloads.prover.ranking import Proof, Ranks, atom_text, averaged, followed, state_text

NAMES = Vocabulary(("likes", "old"), ("ann", "bob"))


@pytest.mark.parametrize(
    ("atom", "text"),
    [
        ((1, 1, 2), "likes(ann,bob)"),
        ((1, 2, 3), "likes(bob,X1)"),
        ((1, 4, 1), "likes(X2,ann)"),
        ((2, 1, 0), "old(ann)"),
        ((3, 0, 0), "TRUE"),
        ((4, 0, 0), "FALSE"),
        ((5, 0, 0), "END"),
    ],
)
def test_an_atom_is_written_with_names(atom: tuple[int, ...], text: str) -> None:
    assert atom_text(atom, NAMES) == text


def test_a_state_is_its_goals_and_a_proof_its_states() -> None:
    assert state_text(((1, 1, 3), (2, 3, 0)), NAMES) == "likes(ann,X1), old(X1)"
    assert str(Proof("q", True, ("a", "b", "TRUE"), -1.0)) == "a\nb\nTRUE"


def test_metrics_are_averaged_each_by_itself() -> None:
    assert averaged([{"mrr": 0.25, "hits1": 0.0}, {"mrr": 0.75, "hits1": 1.0}]) == {"mrr": 0.5, "hits1": 0.5}


def test_a_walk_goes_back_to_no_state_that_it_has_been_in() -> None:
    """q, r and s lead to one another, and each to something new too."""
    names = Vocabulary(("q", "r", "s", "t"), ("a", "b"))
    rules = [
        ((head, 1, 2), ((body, 1, 2),)) for head, body in ((1, 2), (2, 1), (2, 3), (3, 2), (3, 1), (3, 4))
    ]
    resolver = Resolver([], rules, constants=2, predicates=4)
    walk = followed(resolver, (1, 1, 2), [0, 0, 0, 0])
    assert [state_text(state, names) for state in walk] == ["q(a,b)", "r(a,b)", "s(a,b)", "t(a,b)", "FALSE"]


@pytest.fixture
def ranks(problem) -> Ranks:
    kb = problem("f(a,b) f(b,c) f(c,d)", "g(X,Y) <- f(X,Z), f(Z,Y)\ng(X,Y) <- f(Y,X)")
    queries = [("g", "a", "c"), ("g", "d", "c"), ("g", "d", "a")]
    return evaluate(kb, queries, random_policy(kb, 8, 8, 1), modes=("head", "tail"), corruptions=2)[0]


def test_candidates_stand_mode_by_mode_each_query_before_its_corruptions(ranks: Ranks) -> None:
    names = Vocabulary(tuple(ranks.predicates), tuple(ranks.constants))
    texts = [atom_text(candidate, names) for candidate in ranks.candidate]
    assert len(texts) == len(ranks.score) == len(ranks.success) == len(ranks.depth) == ranks.sizes.sum()
    first = np.cumsum(ranks.sizes.ravel()) - ranks.sizes.ravel()
    assert [texts[place] for place in first] == ["g(a,c)", "g(d,c)", "g(d,a)"] * 2 == [*ranks.query] * 2
    assert ranks.mode.tolist() == ["head", "tail"]
    heads, tails = texts[: ranks.sizes[0].sum()], texts[ranks.sizes[0].sum() :]
    assert all(text.endswith(("c)", "a)")) for text in heads) and all(text[2] in "ad" for text in tails)


def test_what_is_written_of_ranks_are_their_own_figures(ranks: Ranks, tmp_path) -> None:
    ranks.save(tmp_path)
    kept = np.load(tmp_path / "ranks.npz")
    assert (
        all(np.array_equal(kept[name], getattr(ranks, name)) for name in kept.files) and len(kept.files) == 13
    )
    summary = json.loads((tmp_path / "metrics.json").read_text())
    assert (summary["queries"], summary["candidates"]) == (3, len(ranks.candidate))
    assert summary["proved"] == ranks.success.sum()
    assert summary["ambiguous_candidates"] == ranks.candidate_ambiguous.sum()
    assert summary["mrr"] == pytest.approx(np.mean(1 / ranks.rank))
    assert summary["modes"]["head"]["hits1"] == pytest.approx(np.mean(ranks.rank[0] <= 1))
