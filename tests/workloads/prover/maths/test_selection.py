"""The tie rule, ambiguity, ranks and metrics."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsweep.workloads.prover import oracle
from perfsweep.workloads.prover.maths.greedy_choice import TAU, choose

INF = float("inf")


def chosen(*logits: float, forced: bool = False):
    choice = choose(torch.tensor([logits]), torch.tensor([forced]))
    return int(choice.column), float(choice.log_prob), bool(choice.ambiguous)


def test_a_forced_move_has_log_probability_zero_and_no_doubt():
    assert chosen(-INF, -INF, -200.0, forced=True) == (2, 0.0, False)


@pytest.mark.parametrize(("gap", "doubt"), [(TAU, True), (TAU * 1.5, False), (TAU / 2, False)])
def test_a_gap_close_to_tau_is_ambiguous(gap, doubt):
    assert chosen(8.0 - gap, 8.0)[2] is doubt


def test_no_nan_comes_of_rows_without_successors():
    choice = choose(
        torch.full((3, 5), -INF).index_fill_(1, torch.tensor([4]), 0.5), torch.tensor([True, False, True])
    )
    assert choice.column.tolist() == [4, 4, 4]
    assert choice.log_prob.tolist() == [0.0, 0.0, 0.0]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=12))
def test_choices_are_the_oracles_unless_one_of_them_is_in_doubt(logits):
    column, log_prob, doubt = chosen(*logits)
    right, right_log_prob, right_doubt = oracle.choose(logits)
    if not (doubt or right_doubt):
        assert column == right
        assert log_prob == pytest.approx(right_log_prob, abs=1e-5)
