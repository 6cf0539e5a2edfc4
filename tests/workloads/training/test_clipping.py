"""Gradients that are kept from growing too large, unscaled before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from perfsweep.workloads.training.clipping import clipping_of
from perfsweep.workloads.training.parts import Parts


@pytest.mark.parametrize(
    ("fields", "scale", "expected"),
    [
        ({}, 4.0, [12.0, -16.0]),  # nothing is clipped, nor unscaled
        ({"clip_norm": 2.5}, 1.0, [1.5, -2.0]),
        ({"clip_norm": 2.5}, 4.0, [1.5, -2.0]),
        ({"clip_norm": 6.0}, 4.0, [3.0, -4.0]),
        ({"group": {"clip_norm": 2.5}}, 4.0, [1.5, -2.0]),
        ({"group": {"lr": 0.5}}, 4.0, [12.0, -16.0]),
        ({"clip_value": 3.5}, 1.0, [3.0, -3.5]),
        ({"clip_value": 3.5}, 4.0, [3.0, -3.5]),
    ],
)
def test_gradients_are_clipped_by_norm_or_by_value(
    fields: dict[str, Any], scale: float, expected: list[float]
) -> None:
    model = nn.Module()
    model.moved, model.frozen = (
        nn.Parameter(torch.zeros(2)),
        nn.Parameter(torch.zeros(2), requires_grad=False),
    )
    model.frozen.grad = torch.full((2,), 100.0)
    if "group" in fields:
        fields = {"groups": [{"params": [model.moved], **fields["group"]}]}
    parts = Parts(model, data=[1], loss=lambda *_: torch.ones(()), **fields)
    optimizer = torch.optim.SGD([model.moved], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale != 1.0)
    scaler.scale(torch.zeros(()))
    model.moved.grad = torch.tensor([3.0, -4.0]) * scale
    clipping_of(parts, model)(optimizer, scaler)
    assert model.moved.grad.tolist() == pytest.approx(expected)
    assert model.frozen.grad.tolist() == [100.0, 100.0]
