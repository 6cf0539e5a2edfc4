"""Options of data loaders: what a script asks for, and what it is given instead."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from torch.utils.data import DataLoader

from perfsweep.workloads.script.batches import tensors_of
from perfsweep.workloads.script.call_sites import CallSites, by_position
from perfsweep.workloads.script.edits.site import LOADER
from perfsweep.workloads.script.watched import Watched

OF_WORKERS: Mapping[str, Any] = {
    "persistent_workers": False,
    "prefetch_factor": None,
    "timeout": 0,
    "multiprocessing_context": None,
}
"""What a loader without workers refuses to be given, with its neutral value."""


class LoaderOptions:
    """What every loader was asked for, and what it is given instead.

    Attributes
    ----------
    asked : arguments of each constructor call, by name
    given : the ones that the arm's levels replace
    """

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.given: dict[str, Any] = {}

    def watch(self, watched: Watched, undo: ExitStack, sites: CallSites) -> None:
        """Begin to look, and to replace."""
        making = DataLoader.__init__
        signature = inspect.signature(making)
        positions = by_position(signature)

        @functools.wraps(making)
        def made(*args: Any, **kwargs: Any) -> None:
            call = signature.bind(*args, **kwargs)
            given = tuple(call.arguments)
            call.apply_defaults()
            about = {"given": given, "positions": positions, "workers": call.arguments["num_workers"]}
            sites.note(LOADER, "DataLoader", sys._getframe(1), **about)
            self.asked.append({**call.arguments, "self": None, "dataset": None})
            call.arguments.update(self._instead(call.arguments))
            making(*call.args, **call.kwargs)

        undo.callback(setattr, DataLoader, "__init__", making)
        DataLoader.__init__ = made  # type: ignore[method-assign]
        watched.after_batch.append(functools.partial(_count, watched))

    def _instead(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.given.get("num_workers", asked["num_workers"]):
            return self.given
        return {**self.given, **OF_WORKERS}

    def workers_somewhere(self) -> bool:
        """Whether some loader has workers, its own or given ones."""
        return bool(self.given.get("num_workers", any(asked["num_workers"] for asked in self.asked)))

    def all_ask(self, name: str, value: int) -> bool:
        """Whether all loaders that can have the option `name` have this value of it themselves."""
        every = name not in OF_WORKERS or self.given.get("num_workers")
        able = [asked for asked in self.asked if every or asked["num_workers"]]
        return bool(able) and all(asked[name] == value for asked in able)


def _count(watched: Watched, batches: Any, batch: Any) -> None:
    counts, workers = watched.counts, batches._num_workers
    counts["loader_workers"] = max(counts["loader_workers"], workers)
    if workers:
        counts["persistent_batches"] += batches._persistent_workers
        counts["batches_ahead"] += workers * batches._prefetch_factor
    if batches._pin_memory:
        counts["pinned_batches"] += any(tensor.is_pinned() for tensor in tensors_of(batch))


COUNTED = ("loader_workers", "persistent_batches", "batches_ahead", "pinned_batches")
