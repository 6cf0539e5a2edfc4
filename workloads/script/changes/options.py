"""Options of data loaders and optimisers: what a script asks for, and what it is given instead."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from perfsweep.workloads.script.batches import tensors_of
from perfsweep.workloads.script.call_sites import CallSites, by_position
from perfsweep.workloads.script.edits.site import LOADER, OPTIMIZER
from perfsweep.workloads.script.replaced import put
from perfsweep.workloads.script.watched import Watched
from perfsweep.workloads.training.updates import UPDATES

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

        put(undo, DataLoader, "__init__", made)
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


class UpdateOptions:
    """What optimisers were asked for, and what they are given instead.

    Attributes
    ----------
    asked : the implementations that the script itself asks for: foreach, fused
    level : the one that every optimiser is given that has it
    """

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.level = ""
        self._inside: Optimizer | None = None

    def watch(self, undo: ExitStack, sites: CallSites) -> None:
        """Begin to look, and to replace: in the classes of torch.optim, which subclasses call too."""
        for cls in vars(torch.optim).values():
            if isinstance(cls, type) and issubclass(cls, Optimizer) and "foreach" in options_of(cls):
                self._replace(cls, undo, sites)

    def _replace(self, cls: type[Optimizer], undo: ExitStack, sites: CallSites) -> None:
        making: Any = cls.__init__
        signature = inspect.signature(making)
        positions, options = by_position(signature), tuple(sorted(options_of(cls)))

        @functools.wraps(making)
        def made(one: Optimizer, *args: Any, **kwargs: Any) -> None:
            call = signature.bind(one, *args, **kwargs)
            if self._inside is not one:  # AdamW calls Adam
                about = {"given": tuple(call.arguments), "positions": positions, "options": options}
                sites.note(OPTIMIZER, cls.__name__, sys._getframe(1), **about)
                self.asked |= {name for name in ("foreach", "fused") if call.arguments.get(name)}
                call.arguments.update(self._instead(cls))
            outer, self._inside = self._inside, one
            try:
                making(*call.args, **call.kwargs)
            finally:
                self._inside = outer

        put(undo, cls, "__init__", made)

    def _instead(self, cls: type[Optimizer]) -> Mapping[str, bool]:
        options = options_of(cls)
        if self.level not in options:
            return {}
        return {name: value for name, value in UPDATES[self.level].items() if name in options}


def options_of(cls: type[Optimizer]) -> set[str]:
    """The implementations that a class of torch.optim can be asked for."""
    return {"foreach", "fused"} & set(inspect.signature(cls.__init__).parameters)
