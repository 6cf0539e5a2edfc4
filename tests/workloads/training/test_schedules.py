"""When a schedule steps, and what it watches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, ReduceLROnPlateau

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.training.parts import Parts
from perfsweep.workloads.training.schedules import Schedule


def made(**fields: Any) -> tuple[Schedule, torch.optim.Optimizer]:
    model = nn.Linear(1, 1)
    parts = Parts(model, data=[1], loss=lambda *_: torch.ones(()), **fields)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return Schedule(parts, optimizer), optimizer


def rate(optimizer: torch.optim.Optimizer) -> float:
    return optimizer.param_groups[0]["lr"]


WATCHED: dict[str, Any] = {"evaluate": lambda *_: {}, "evaluate_every": 1}


@pytest.mark.parametrize("every", ["iteration", "epoch", "evaluation"])
def test_a_schedule_steps_at_its_moment_and_at_no_other(every: Any) -> None:
    fields = WATCHED if every == "evaluation" else {}
    schedule, optimizer = made(schedule=lambda one: ExponentialLR(one, 0.5), schedule_every=every, **fields)
    optimizer.step()  # PyTorch warns of schedules that step before
    for moment in ("iteration", "epoch", "evaluation"):
        before = rate(optimizer)
        schedule.after(moment, {"loss": 1.0})
        assert rate(optimizer) == (before / 2 if moment == every else before)
    other, second = made(schedule=lambda one: ExponentialLR(one, 0.5))
    other.load_state_dict(schedule.state_dict())
    assert other.state_dict()["last_epoch"] == 1
    assert rate(second) == 1.0  # it is the optimiser's to keep


def test_a_plateau_is_one_of_the_first_figure() -> None:
    schedule, optimizer = made(
        schedule=lambda one: ReduceLROnPlateau(one, factor=0.1, patience=0),
        schedule_every="evaluation",
        **WATCHED,
    )
    for first, expected in ((3.0, 1.0), (2.0, 1.0), (2.5, 0.1), (1.0, 0.1)):
        schedule.after("evaluation", {"loss": first, "other": -first})
        assert rate(optimizer) == pytest.approx(expected)


def test_a_plateau_of_iterations_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a ReduceLROnPlateau, .*; add schedule_every='evaluation'"):
        made(schedule=ReduceLROnPlateau)


def test_without_a_schedule_nothing_happens() -> None:
    schedule, optimizer = made()
    schedule.after("iteration")
    assert rate(optimizer) == 1.0
    assert schedule.state_dict() == {}
    schedule.load_state_dict({"last_epoch": 3})
