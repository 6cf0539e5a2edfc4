"""Convolutions whose channels lie next to one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.conv import _ConvNd

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.changes.scene import Call, Scene, wrap

LAST = torch.channels_last


def obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why no memory format can be changed."""
    weights = list(_weights(scene))
    if not weights:
        return "has no convolution over images in the modules it calls"
    if any(one.is_contiguous(memory_format=LAST) and not one.is_contiguous() for one in weights):
        return "keeps its convolutions in channels_last itself"
    if not any(4 in scene.watched.input_dims.get(module, ()) for module in scene.modules):
        return "passes no images, tensors of 4 dimensions, to its outermost modules"
    return None


def begin(scene: Scene, level: LevelValue) -> None:
    """Lay out weights, what the optimisers keep of them, and the inputs of each call again."""
    for module in scene.modules:
        module.to(memory_format=LAST)  # type: ignore[call-overload]
        wrap(module, partial(_with_images, counts=scene.watched.counts))
    for one in scene.watched.made:
        _lay_out(one.state)


def _with_images(call: Call, counts: Counter[str]) -> Call:
    def call_with_images(*args: Any, **kwargs: Any) -> Any:
        named = {name: _laid_out(value, counts) for name, value in kwargs.items()}
        return call(*(_laid_out(value, counts) for value in args), **named)

    return call_with_images


def _laid_out(value: Any, counts: Counter[str]) -> Any:
    if not isinstance(value, Tensor) or value.dim() != 4:
        return value
    counts["channels_last_inputs"] += 1
    return value.contiguous(memory_format=LAST)


def _lay_out(states: dict[Tensor, dict[str, Any]]) -> None:
    """Momenta and gradients as their weights are: updates of unlike layouts take a slower path."""
    for weight, state in states.items():
        if weight.dim() == 4:
            if weight.grad is not None:
                weight.grad = weight.grad.contiguous(memory_format=LAST)
            for name, value in state.items():
                if isinstance(value, Tensor) and value.shape == weight.shape:
                    state[name] = value.contiguous(memory_format=LAST)


def _weights(scene: Scene) -> Iterator[Tensor]:
    for module in scene.modules:
        for one in module.modules():
            if isinstance(one, _ConvNd) and one.weight.dim() == 4:
                yield one.weight
