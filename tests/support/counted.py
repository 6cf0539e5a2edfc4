"""A small network, and what counting one of its training steps finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from perfsweep.pipelines.trial.counters import Counting

FLOAT = 4  # bytes
BATCH, INPUT, HIDDEN, OUTPUT = 8, 16, 32, 4


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(INPUT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUTPUT))


def rows(count: int = BATCH) -> torch.Tensor:
    return torch.randn(count, INPUT, generator=torch.Generator().manual_seed(1))


def train(model: Callable[[torch.Tensor], torch.Tensor], data: torch.Tensor) -> float:
    """Forward, backward, and one read of the loss by the host."""
    loss = model(data).square().mean()
    loss.backward()
    return loss.item()


def count(work: Callable[[], object], iterations: int = 1, **options: Any) -> dict[str, float | None]:
    with Counting(iterations, **options) as counting:
        for _ in range(iterations):
            work()
    return counting.result()
