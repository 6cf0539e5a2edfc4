"""Copies to the device that return at once."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.changes.scene import Scene


def obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why no copy can return at once."""
    if scene.watched.total("pinned_batches"):
        return None
    return "has no batches in pinned memory, without which copies wait; combine it with toggles.pin_memory"


def begin(scene: Scene, level: LevelValue) -> None:
    """From pinned memory, copy without waiting where the script does not say how.

    The wrapper costs a call of a tensor's `to` some 0.2 us, in this arm alone.
    """
    for name in ("to", "cuda"):
        _replace(scene, name)


def _replace(scene: Scene, name: str) -> None:
    copying, counts = getattr(Tensor, name), scene.watched.counts

    def copy(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if tensor.is_cuda or _says_how(args, kwargs) or not tensor.is_pinned():
            return copying(tensor, *args, **kwargs)
        result = copying(tensor, *args, **kwargs, non_blocking=True)
        counts["unwaited_copies"] += result.is_cuda
        return result

    setattr(Tensor, name, copy)
    scene.undo.callback(delattr, Tensor, name)  # it is inherited


def _says_how(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return "non_blocking" in kwargs or any(isinstance(one, bool) for one in args)
