"""The calls of a script's outermost modules in 16 bits."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.changes.loss_scaling import LossScaling
from perfsweep.workloads.script.changes.scene import NO_MODULE, Call, Scene, wrap
from perfsweep.workloads.training.precision import AUTOCAST, autocast, grad_scaler

HALVES = tuple(AUTOCAST.values())

FIRST_SCALE = 2.0**12
"""First loss scale. PyTorch's default, 2**16, is meant to overflow at first: updates are skipped until the
scale fits, and each skipped update shifts an arm's losses by one iteration against the baseline's. This scale
seldom overflows, and the smallest gradient that fp16 can hold falls from 6e-8 to 1.5e-11."""


def obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why no module can be autocast."""
    if reason := scene.own.reasons.get("amp"):
        return f"{reason} itself"
    if not scene.modules:
        return NO_MODULE
    if all(_is_of(HALVES, module) for module in scene.modules):
        return "keeps its parameters in 16 bits itself"
    if all(_is_of((torch.float64,), module) for module in scene.modules):
        return "keeps its parameters in float64, which autocast leaves as it is"
    return _scaling_obstacle(scene) if level == "fp16" else None


def _scaling_obstacle(scene: Scene) -> str | None:
    """Why losses cannot be scaled."""
    if scene.watched.closures:
        names = ", ".join(sorted(scene.watched.closures))
        return f"computes gradients in a closure that {names} calls, where no update can be skipped; try bf16"
    if not scene.watched.total("backward_calls"):
        return "is not seen to call backward of a loss, which fp16 must scale"
    if any(type(one).__name__ == "FullyShardedDataParallel" for one in scene.modules):
        return "shards its parameters with FSDP, whose clipping cannot be made to wait for unscaled gradients"
    return None


def prepare(scene: Scene, level: LevelValue) -> None:
    """Put the clipping of gradients where it can be reached: scripts import it by name."""
    if level == "fp16":
        scene.clipping.watch(scene.undo)


def begin(scene: Scene, level: LevelValue) -> None:
    """Autocast the calls of the outermost modules; their outputs are float32 again, as accelerate does it."""
    for module in scene.modules:
        wrap(module, partial(_autocast_call, context=autocast(str(level), _device_of(module))))
    if level == "fp16":
        scaler = grad_scaler("fp16", _device_of(scene.modules[0]), init_scale=FIRST_SCALE)
        LossScaling(scaler, scene.watched, scene.clipping).begin()


def _autocast_call(call: Call, context: AbstractContextManager[Any]) -> Call:
    def call_in_16_bits(*args: Any, **kwargs: Any) -> Any:
        with context:
            result = call(*args, **kwargs)
        if isinstance(result, Tensor):
            return _whole(result)
        return pytree.tree_map_only(Tensor, _whole, result)

    return call_in_16_bits


def _whole(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALVES else tensor


def _is_of(types: Sequence[torch.dtype], module: nn.Module) -> bool:
    return all(parameter.dtype in types for parameter in module.parameters())


def _device_of(module: nn.Module) -> torch.device:
    return next(module.parameters()).device
