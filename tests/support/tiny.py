"""A training of a regression of eight numbers, with any fields of `Parts`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from perfsweep.workloads.api import Context, Levels, NullClock
from perfsweep.workloads.training import Parts, Training, shared_toggles

ROWS = 70
INPUTS = torch.randn(ROWS, 8, generator=torch.Generator().manual_seed(1))
TARGETS = INPUTS.sum(dim=1, keepdim=True)


@dataclass
class TinyConfig:
    """Rows of a batch."""

    batch_size: int = 24


def squared_error(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(x), y)


def plain_sgd(parameters: Any, **how: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, **how)


class Tiny(Training):
    """A linear model; `fields` are what a test says of its `Parts`."""

    Config = TinyConfig
    toggles = (*shared_toggles(), *shared_toggles("ddp"))

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__()
        self.fields = fields

    def build(self, config: TinyConfig, levels: Levels, context: Context) -> Parts:
        default = {
            "model": nn.Linear(8, 1),
            "data": None if "loader" in self.fields else TensorDataset(INPUTS, TARGETS),
            "loss": squared_error,
            "optimizer": plain_sgd,
        }
        return Parts(**{**default, **self.fields})


BASELINE = {toggle.name: toggle.levels[0].value for toggle in Tiny.toggles}

Train = Callable[..., Tiny]


def go_on(workload: Training, steps: int) -> None:
    """Do some iterations."""
    for _ in range(steps):
        workload.step(NullClock())


def gradient(workload: Training) -> torch.Tensor:
    """What the optimiser was given last, flat."""
    return torch.cat([p.grad.flatten() for p in workload.model.parameters() if p.grad is not None])


def parameters(workload: Training) -> torch.Tensor:
    """All parameters, flat."""
    return torch.cat([p.detach().flatten() for p in workload.model.parameters()])


def rate(workload: Training) -> float:
    """The learning rate of the next update."""
    return workload._optimizer.param_groups[0]["lr"]
