"""Which atoms unify, and what is left: constants are 1 to 9, variables 10 and above."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.prover.maths.unify import match_facts, match_heads, substituted

X, Y = 10, 11


@pytest.mark.parametrize(
    ("goal", "fact", "matches", "terms"),
    [
        ((1, 2), (1, 2), True, [X, Y]),
        ((1, 2), (1, 3), False, None),
        ((X, 2), (3, 2), True, [3, Y]),
        ((X, Y), (3, 4), True, [3, 4]),
        ((X, X), (3, 3), True, [3, Y]),
        ((X, X), (3, 4), False, None),
        ((9, X), (9, 4), True, [4, Y]),  # nine is a constant still
    ],
)
def test_a_goal_meets_a_fact(goal, fact, matches: bool, terms) -> None:
    found, sigma = match_facts(torch.tensor([goal]), torch.tensor([fact]), constants=9)
    assert found.tolist() == [matches]
    if matches:
        assert substituted(torch.tensor([[X, Y]]), sigma).tolist() == [terms]


@pytest.mark.parametrize(
    ("goal", "head", "matches", "goals", "terms"),
    # Variables of heads are numbered from 1.
    [
        ((1, 2), (1, 2), True, [1, 2], [X, Y]),
        ((X, 2), (1, 2), True, [X, 2], [X, Y]),
        ((3, 3), (1, 1), True, [3, 3], [X, Y]),
        ((3, 4), (1, 1), False, None, None),
        ((X, 4), (1, 1), True, [4, 4], [4, Y]),
        ((4, Y), (1, 1), True, [4, 4], [X, 4]),
        ((X, Y), (1, 1), True, [X, X], [X, X]),  # of two variables the later is renamed
        ((X, X), (1, 1), True, [X, X], [X, Y]),
        ((3, 0), (1, 2), False, None, None),
        ((3, 2), (1, 0), False, None, None),
        ((3, 0), (1, 0), True, [3, 0], [X, Y]),
    ],
)
def test_a_goal_meets_a_head(goal, head, matches: bool, goals, terms) -> None:
    found, merged, sigma = match_heads(torch.tensor([goal]), torch.tensor([head]), constants=9)
    assert found.tolist() == [matches]
    if matches:
        assert merged.tolist() == [goals]
        assert substituted(torch.tensor([[X, Y]]), sigma).tolist() == [terms]


def test_a_merge_of_two_places_is_seen_by_the_next() -> None:
    goal, head = torch.tensor([[X, Y, 3]]), torch.tensor([[1, 1, 1]])
    found, merged, sigma = match_heads(goal, head, constants=9)
    assert found.tolist() == [True]
    assert merged.tolist() == [[3, 3, 3]]
    assert substituted(torch.tensor([[X, Y]]), sigma).tolist() == [[3, 3]]
    assert match_heads(torch.tensor([[3, Y, 4]]), head, constants=9)[0].tolist() == [False]


def test_substitutions_follow_one_another_and_zero_stands_for_none() -> None:
    sigma = [(torch.tensor([X, 0]), torch.tensor([Y, 5])), (torch.tensor([Y, Y]), torch.tensor([3, 4]))]
    terms = torch.tensor([[[X, 0], [Y, 1]], [[X, 0], [Y, 1]]])
    assert substituted(terms, sigma).tolist() == [[[3, 0], [3, 1]], [[X, 0], [4, 1]]]
