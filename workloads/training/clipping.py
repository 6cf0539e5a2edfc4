"""Clipping of gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from perfsweep.workloads.training.parts import Parts

Clip = Callable[[torch.optim.Optimizer, torch.amp.GradScaler], None]
"""Called between the backward pass and the update."""


def clipping_of(parts: Parts, model: nn.Module) -> Clip:
    """Choose how gradients are clipped: all of them by norm or value, each group by its own norm, or not."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if parts.clip_value is not None:
        return _unscaled(torch.nn.utils.clip_grad_value_, [(parameters, parts.clip_value)])
    each = [(group["params"], group.get("clip_norm")) for group in parts.groups]
    limited = [(some, limit) for some, limit in [*each, (parameters, parts.clip_norm)] if limit is not None]
    return _unscaled(torch.nn.utils.clip_grad_norm_, limited) if limited else _nothing


def _unscaled(clip: Callable[..., object], limited: list[tuple[list[nn.Parameter], float]]) -> Clip:
    def unscale_and_clip(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
        # The limit is for unscaled gradients; a scaled loss makes them tens of thousands of times as large.
        scaler.unscale_(optimizer)
        for parameters, limit in limited:
            clip(parameters, limit)

    return unscale_and_clip


def _nothing(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
    pass
