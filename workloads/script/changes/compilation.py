"""torch.compile of a script's outermost modules."""

from __future__ import annotations

from functools import partial

import torch
from torch.nn.parallel import DistributedDataParallel

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.changes.scene import NO_MODULE, Scene, wrap
from perfsweep.workloads.training.compilation import GRAPHED, compile_call


def obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why no module can be compiled."""
    if reason := scene.own.reasons.get("compile"):
        return f"{reason} itself"
    if not scene.modules:
        return NO_MODULE
    return None


def late_obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why graphs cannot be replayed: the memory of their gradients is overwritten by the next replay."""
    if level not in GRAPHED:
        return None
    watched, resets = scene.watched, scene.own.drops_gradients
    if scene.levels.get("zero_grad") == "zero" or (False in resets and "zero_grad" not in scene.levels):
        return "zeroes gradients, whose memory CUDA graphs overwrite; combine it with toggles.zero_grad=none"
    if watched.total("backward_calls") > watched.total("optimizer_steps"):
        return "adds up gradients of several backward passes, whose memory CUDA graphs overwrite"
    return None


def begin(scene: Scene, level: LevelValue) -> None:
    """Compile what the outermost modules call; their first calls from here on generate the code."""
    for module in scene.modules:
        # What is inside DDP: its own code waits for other processes between its buckets.
        inner = module.module if isinstance(module, DistributedDataParallel) else module
        wrap(inner, partial(compile_call, level=str(level)))
    if level in GRAPHED:
        scene.watched.end_of_iteration.append(torch.compiler.cudagraph_mark_step_begin)
