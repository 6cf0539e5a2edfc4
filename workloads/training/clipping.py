"""Gradients kept from growing too large."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from perfsweep.workloads.training.parts import Parts

Clip = Callable[[torch.optim.Optimizer, torch.amp.GradScaler], None]
"""Called between the backward pass and the update."""


def clipping_of(parts: Parts, model: nn.Module) -> Clip:
    """Choose how gradients are clipped: by `Parts.clip_norm`, by `Parts.clip_value`, or not at all."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if parts.clip_norm is not None:
        return _unscaled(torch.nn.utils.clip_grad_norm_, parameters, parts.clip_norm)
    if parts.clip_value is not None:
        return _unscaled(torch.nn.utils.clip_grad_value_, parameters, parts.clip_value)
    return _nothing


def _unscaled(clip: Callable[..., object], parameters: list[nn.Parameter], limit: float) -> Clip:
    def unscale_and_clip(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
        # The limit is one of gradients; those of a scaled loss are tens of thousands of times as large.
        scaler.unscale_(optimizer)
        clip(parameters, limit)

    return unscale_and_clip


def _nothing(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
    pass
