"""Data loaders: options by their constructor, and first batches that come again in every epoch."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.batches import length_of, tensors_of
from perfsweep.workloads.script.changes.options import OF_WORKERS
from perfsweep.workloads.script.changes.scene import Scene
from perfsweep.workloads.script.replaced import put
from perfsweep.workloads.script.watched import Watched
from perfsweep.workloads.training.loading import KeptBatches


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

    put(scene.undo, _MultiProcessingDataLoaderIter, "_reset", reset)


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


def keep_batches(scene: Scene, level: LevelValue) -> None:
    """Let every loader that is trained on give its first batches again, in epochs as long as its own."""
    repeated: Any = RepeatedEpochs(scene.watched, scene.watched.next_batch)
    scene.watched.next_batch = repeated


class RepeatedEpochs:
    """Is between a script and its loaders; what it evaluates on is loaded as it was."""

    def __init__(self, watched: Watched, following: Callable[[Any], Any]) -> None:
        self._watched, self._following = watched, following
        self._known: list[_OfDataSet] = []
        self._places: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def __call__(self, batches: Any) -> Any:
        """The next batch of a loader's iterator."""
        length = length_of(batches)
        if not torch.is_grad_enabled() or not length:
            return self._following(batches)
        kept = self._kept_of(batches._dataset, length)
        place = self._places.get(batches, 0)
        try:
            if place >= length:
                raise StopIteration
            batch = kept.again(place) if kept.complete else self._following(batches)
        except StopIteration:
            kept.complete = len(kept) > 0  # a whole epoch is there, and more there is not
            # An iterator that lives on, as that of persistent workers, begins its next epoch.
            self._places.pop(batches, None)
            raise
        if not kept.complete:
            kept.add(batch)
        self._places[batches] = place + 1
        return batch

    def _kept_of(self, data: Any, length: int) -> KeptBatches[Any]:
        """The batches of a data set, or of one like it that is gone: some make theirs in each epoch."""
        like = type(data), length
        same = (one for one in self._known if one.data() is data)
        gone = (one for one in self._known if one.data() is None and one.like == like)
        found = next(same, None) or next(gone, None)
        if found is None:
            found = _OfDataSet(like, KeptBatches(tensors_of, self._watched.counts))
            self._known.append(found)
        found.data = _reference(data)
        return found.kept


@dataclass
class _OfDataSet:
    """What is kept of a data set, its class and the batches of an epoch, and the data set while it lives."""

    like: tuple[type[Any], int]
    kept: KeptBatches[Any]
    data: Callable[[], Any] = lambda: None


def _reference(data: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(data)
    except TypeError:  # a list, say, cannot be referred to so
        return lambda: data


def keep_obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why batches cannot be kept."""
    watched = scene.watched
    if not watched.total("batches"):
        return "trains on no batch of a DataLoader before its first iteration ends"
    if not watched.epoch:
        return (
            "reads a stream, which does not say where an epoch ends; measure.stall needs a data set of rows"
            " by number"
        )
    return None
