"""Options of data loaders, by their constructor."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.changes.loader_options import OF_WORKERS
from perfsweep.workloads.script.changes.scene import Scene


def keep_workers(scene: Scene, level: LevelValue) -> None:
    """Keep the processes of loaders from epoch to epoch, and the order of their rows what it is without.

    An iterator over a loader draws its workers' seed from the generator that permutations come from too. One
    that is kept draws none, and every permutation from the second epoch on would be another.
    """
    give("persistent_workers", scene, level)
    resetting = _MultiProcessingDataLoaderIter._reset

    def reset(batches: Any, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        resetting(batches, loader, first_iter)

    scene.undo.callback(setattr, _MultiProcessingDataLoaderIter, "_reset", resetting)
    _MultiProcessingDataLoaderIter._reset = reset  # type: ignore[method-assign]


def give(name: str, scene: Scene, level: LevelValue) -> None:
    """Give every loader the option `name` at `level`."""
    scene.loaders.given[name] = _value(level)


def _value(level: LevelValue) -> int:
    return True if level == "on" else int(level)


def obstacle(name: str, scene: Scene, level: LevelValue) -> str | None:
    """Why the option `name` cannot act."""
    loaders = scene.loaders
    if not loaders.asked:
        return "makes no DataLoader before its first iteration ends"
    if name in OF_WORKERS and not loaders.workers_somewhere():
        return "has loaders without workers; combine it with toggles.num_workers"
    value = _value(level)
    return f"has loaders with {name}={value} already" if loaders.all_ask(name, value) else None


def late_obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why no loader can act within iterations: the script has taken its batches before, and holds no loader's
    iterator any more.
    """
    watched = scene.watched
    if watched.in_setup["batches"] and not watched.counts["batches"] and not watched.iterators:
        return "takes its batches from a DataLoader before its iterations, and none within them"
    return None
