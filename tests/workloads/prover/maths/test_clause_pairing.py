"""Which pairs of rows and clauses there are: padded, exact, or within a budget."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.prover.maths.clause_pairing import padded_pairs, pairs_in_budget, real_pairs
from perfsweep.workloads.prover.maths.policy import PolicyShape, make_weights
from perfsweep.workloads.prover.reference import Reference
from perfsweep.workloads.prover.variants import TOGGLES, arm

BASE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}

START, COUNT = torch.tensor([5, 0, 2]), torch.tensor([2, 0, 3])


def test_a_grid_pads_every_row() -> None:
    pairs = padded_pairs((START, COUNT), 3)
    assert pairs.owner.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert pairs.number.tolist() == [5, 6, 0, 0, 0, 0, 2, 3, 4]
    assert pairs.real.tolist() == [True, True, False, False, False, False, True, True, True]
    assert pairs.deferred.tolist() == [False] * 3


def test_ragged_pairs_are_exactly_those_there_are() -> None:
    pairs = real_pairs((START, COUNT))
    assert pairs.owner.tolist() == [0, 0, 2, 2, 2]
    assert pairs.number.tolist() == [5, 6, 2, 3, 4]
    assert pairs.real.all()
    assert pairs.deferred.tolist() == [False] * 3


@pytest.mark.parametrize(
    ("budget", "numbers", "deferred"),
    [
        (5, [5, 6, 2, 3, 4], [False, False, False]),
        (7, [5, 6, 2, 3, 4], [False, False, False]),
        (4, [5, 6], [False, False, True]),
        (2, [5, 6], [False, False, True]),
        (1, [], [True, True, True]),
    ],
)
def test_rows_beyond_a_budget_wait(budget: int, numbers: list[int], deferred: list[bool]) -> None:
    pairs = pairs_in_budget((START, COUNT), budget)
    assert pairs.owner.numel() == budget
    assert pairs.number[pairs.real].tolist() == numbers
    assert pairs.owner[pairs.real].tolist() == [0, 0, 2, 2, 2][: len(numbers)]
    assert pairs.deferred.tolist() == deferred
    assert not pairs.number[~pairs.real].any()


FACTS = "p(a,b) p(a,c) p(b,c) p(c,a) q(a,b)"
RULES = "p(X,Y) <- q(X,Y)\nq(X,Y) <- p(Y,X)\nq(X,Y) <- p(X,Z), p(Z,Y)"


@pytest.fixture
def kb(knowledge):
    return knowledge(FACTS, RULES)


def made(kb, **levels: str) -> Reference:
    own, shape = {**BASE, **levels}, PolicyShape(1, 1, 0)
    return arm(own)(own, kb, make_weights(shape, kb.vocabulary, 0), shape)


@pytest.mark.parametrize(
    ("goal", "expected"),
    # a, b, c are 1, 2, 3; 4 and 5 are variables; p is 1, q is 2.
    [
        ((1, 1, 2), ["p(a,b)"]),
        ((1, 1, 4), ["p(a,b)", "p(a,c)"]),
        ((1, 4, 3), ["p(a,c)", "p(b,c)"]),
        ((1, 4, 5), ["p(a,b)", "p(a,c)", "p(b,c)", "p(c,a)"]),
        ((1, 4, 4), ["p(a,b)", "p(a,c)", "p(b,c)", "p(c,a)"]),
        ((1, 2, 2), []),
        ((2, 4, 2), ["q(a,b)"]),
        ((2, 3, 4), []),
    ],
)
@pytest.mark.parametrize("static", [{}, {"compile": "default"}], ids=["exact", "static"])
def test_an_index_finds_the_facts_that_share_what_is_bound(
    kb, goal, expected, static: dict[str, str]
) -> None:
    pairs = made(kb, fact_index="csr", **static).fact_pairs(torch.tensor([goal]))
    names = [FACTS.split()[number] for number in pairs.number[pairs.real].tolist()]
    assert names == expected
    dense = made(kb, **static).fact_pairs(torch.tensor([goal]))
    all_of_it = [name for name in FACTS.split() if name[0] == "pq"[goal[0] - 1]]
    assert [FACTS.split()[number] for number in dense.number[dense.real].tolist()] == all_of_it
    assert dense.owner.numel() == 4  # the largest predicate


def test_rules_are_padded_to_a_hundred_to_the_largest_group_or_not_at_all(kb) -> None:
    goals = torch.tensor([[2, 1, 2], [1, 1, 2]])
    for level, size in (("pad100", 200), ("exact", 4), ("ragged", 3)):
        pairs = made(kb, rule_pairs=level).rule_pairs(goals)
        assert pairs.owner.numel() == size, level
        assert pairs.owner[pairs.real].tolist() == [0, 0, 1]
        assert pairs.number[pairs.real].tolist() == [1, 2, 0]
