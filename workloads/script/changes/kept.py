"""The first batches of a script's loaders, given again in every epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch

from workloads.api import LevelValue
from workloads.script.changes.scene import Scene
from workloads.script.watched import Watched, length_of, tensors_of
from workloads.training.kept_batches import KeptBatches


def keep_batches(scene: Scene, level: LevelValue) -> None:
    """Let every loader that is trained on give its first batches again, in epochs as long as its own."""
    scene.watched.next_batch = RepeatedEpochs(scene.watched, scene.watched.next_batch)


class RepeatedEpochs:
    """Stands between a script and its loaders; what it evaluates on is loaded as it was."""

    def __init__(self, watched: Watched, following: Callable[[Any], Any]) -> None:
        self._watched, self._following = watched, following
        # By data set, which is kept so that no other gets its address.
        self._kept: dict[int, tuple[Any, KeptBatches[Any]]] = {}
        self._places: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def __call__(self, batches: Any) -> Any:
        """The next batch of a loader's iterator."""
        length = length_of(batches)
        if not torch.is_grad_enabled() or not length:
            return self._following(batches)
        _, kept = self._kept.setdefault(
            id(batches._dataset), (batches._dataset, KeptBatches(tensors_of, self._watched.counts))
        )
        place = self._places.get(batches, 0)
        try:
            if place >= length:
                raise StopIteration
            batch = kept.again(place) if kept.complete else self._loaded(kept, batches)
        except StopIteration:
            # An iterator that lives on, as that of persistent workers, begins its next epoch.
            self._places.pop(batches, None)
            raise
        self._places[batches] = place + 1
        return batch

    def _loaded(self, kept: KeptBatches[Any], batches: Any) -> Any:
        """One more batch from the loader; an epoch that ends early is all there is to keep."""
        try:
            batch = self._following(batches)
        except StopIteration:
            kept.complete = len(kept) > 0
            raise
        kept.add(batch)
        return batch


def obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why batches cannot be kept."""
    watched = scene.watched
    if not watched.total("batches"):
        return "trains on no batch of a DataLoader before its first iteration ends"
    if not watched.total("kept_batches"):
        return (
            "reads a stream without a length: where an epoch of it ends is not known without reading it; give"
            " its data set __len__"
        )
    return None
