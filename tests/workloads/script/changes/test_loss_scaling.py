"""Losses that are scaled behind a script's back: gradients, clipping and updates are what they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import torch
from torch import nn
from torch.optim import SGD

from perfsweep.workloads.script.changes.loss_scaling import Clipping, LossScaling
from perfsweep.workloads.script.watched import Watched
from perfsweep.workloads.training.precision import grad_scaler

SCALE = 8.0


@pytest.fixture
def watched() -> Iterator[Watched]:
    """What sees all optimisers that are made."""
    with ExitStack() as undo:
        yield Watched(undo)


@pytest.fixture
def scaling(watched: Watched) -> Iterator[LossScaling]:
    with ExitStack() as undo:
        clipping = Clipping()
        clipping.watch(undo)
        scaler = grad_scaler("fp16", torch.device("cpu"), init_scale=SCALE)
        yield LossScaling(scaler, watched, clipping)


def weight(value: float = 2.0) -> nn.Parameter:
    return nn.Parameter(torch.tensor([value]))


def grad(one: nn.Parameter) -> float:
    assert one.grad is not None
    return one.grad.item()


def test_gradients_are_added_up_at_one_scale_and_clipped_without_it_in_every_iteration(
    scaling: LossScaling,
) -> None:
    one = weight()
    optimizer = SGD([one], lr=1.0)
    scaling.begin()
    for number in range(1, 4):
        for factor in (1.0, 2.0):
            (factor * one).sum().backward()
        assert grad(one) == 3 * SCALE
        assert float(torch.nn.utils.clip_grad_norm_([one], 1.5)) == pytest.approx(3.0)
        optimizer.step()
        optimizer.zero_grad()
        assert one.item() == pytest.approx(2 - 1.5 * number, rel=1e-5)


def test_an_update_that_overflowed_is_skipped_alone_and_told(scaling: LossScaling, watched: Watched) -> None:
    told: list[object] = []
    watched.over.append(told.append)
    one = weight()
    optimizer = SGD([one], lr=1.0)
    scaling.begin()
    for factor, after in ((float("inf"), 2.0), (1.0, 1.0)):
        optimizer.zero_grad()
        (factor * one).sum().backward()
        optimizer.step()
        assert one.item() == after
    assert told == [(id(optimizer),)] * 2 and watched.counts["skipped_updates"] == 1
