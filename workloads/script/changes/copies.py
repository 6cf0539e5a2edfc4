"""Copies to the device that return at once."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.changes.scene import Scene
from perfsweep.workloads.script.edits.site import BACK, COPY


def obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why no copy can return at once."""
    if scene.watched.total("pinned_batches"):
        return None
    return "has no batches in pinned memory, without which copies wait; combine it with toggles.pin_memory"


def watch(scene: Scene) -> None:
    """Note the calls that copy from pinned memory to a GPU, or back, until the first mark."""
    if scene.device.type == "cpu":
        return
    for name in ("to", "cuda"):
        _note(scene, name)


def _note(scene: Scene, name: str) -> None:
    copying = getattr(Tensor, name)

    def noted(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = copying(tensor, *args, **kwargs)
        back = tensor.is_cuda and not result.is_cuda
        pinned = result.is_cuda and not tensor.is_cuda and tensor.is_pinned()
        if (back or pinned) and not _says_how(args, kwargs):
            scene.sites.note(BACK if back else COPY, name, sys._getframe(1), given=tuple(kwargs))
        return result

    setattr(Tensor, name, noted)
    scene.own.until_first_mark.callback(delattr, Tensor, name)  # it is inherited


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
