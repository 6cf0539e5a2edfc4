"""Blocks whose activations the backward pass computes once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch import nn

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.changes.scene import NO_MODULE, Scene
from perfsweep.workloads.training.compilation import recompute


def obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why no block can be recomputed."""
    if reason := scene.own.reasons.get("grad_checkpointing"):
        return f"{reason} itself"
    if not scene.modules:
        return NO_MODULE
    if any(True for module in scene.modules for _ in _blocks(module, scene.blocks)):
        return None
    missing = f"has no module of the class {scene.blocks}; it " if scene.blocks else ""
    candidates = ", ".join(_repeated(scene)) or "no class of modules"
    return f"{missing}repeats {candidates}: name one to recompute with workload.blocks"


def begin(scene: Scene, level: LevelValue) -> None:
    """Keep no activations of the blocks."""
    for module in scene.modules:
        recompute(list(_blocks(module, scene.blocks)))


def _blocks(module: nn.Module, name: str) -> Iterator[nn.Module]:
    """The outermost modules of the class `name`."""
    if type(module).__name__ == name:
        yield module
        return
    for child in module.children():
        yield from _blocks(child, name)


def _repeated(scene: Scene) -> list[str]:
    """Classes of modules with children that occur more than once, the most frequent first."""
    inner = (one for module in scene.modules for one in module.modules() if any(True for _ in one.children()))
    counts = Counter(
        type(one).__name__ for one in inner if not isinstance(one, nn.ModuleList | nn.ModuleDict)
    )
    return [name for name, count in counts.most_common(8) if count > 1]
