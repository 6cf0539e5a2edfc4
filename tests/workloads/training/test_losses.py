"""Losses on their way to the log."""

from __future__ import annotations

import torch

from perfsweep.workloads.training.evaluation import KEPT, LateLosses, Row


def test_each_loss_arrives_one_iteration_late_and_the_last_one_is_taken() -> None:
    losses = LateLosses()
    assert losses.take() is None
    assert losses.push(1, torch.tensor(2.0)) is None
    assert losses.push(2, torch.tensor(3.0), share=0.25) == Row(1, 2.0)
    assert losses.push(3, torch.tensor(4.0)) == Row(2, 12.0)
    assert losses.take() == Row(3, 4.0)
    assert losses.take() is None


def test_terms_travel_with_their_sum_which_alone_is_kept() -> None:
    losses = LateLosses()
    losses.names = ("first", "rest")
    losses.push(1, torch.tensor([3.0, 1.0, 2.0]), share=0.5)
    assert [float(one) for one in losses.history] == [3.0]
    assert losses.take() == Row(1, 6.0, {"first": 2.0, "rest": 4.0})


def test_the_past_is_kept_as_far_as_evidence_needs_it() -> None:
    losses = LateLosses()
    for number in range(KEPT + 5):
        losses.push(number, torch.tensor(float(number)))
    assert len(losses.history) == KEPT == 1000
    assert float(losses.history[0]) == 5.0
