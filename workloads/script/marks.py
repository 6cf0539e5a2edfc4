"""Where an iteration of a script ends."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from typing import Any

import torch

from perfsweep.workloads.script import explicit_marks
from perfsweep.workloads.script.config import BACKWARD, LOADER, MARKS, OPTIMIZER
from perfsweep.workloads.script.replaced import put
from perfsweep.workloads.script.watched import Watched

PATIENCE = 32
"""Updates after which an optimiser that goes on alone is taken at its word. Without any order four times as
many, or four for each optimiser."""

Mark = Callable[[], None]


def install(iteration: str, watched: Watched, mark: Mark, undo: ExitStack) -> None:
    """Have `mark` called where an iteration of the kind `iteration` ends."""
    if iteration == OPTIMIZER:
        watched.over.append(UpdateCycle(watched, mark))
    elif iteration == BACKWARD:
        watched.after_backward.append(mark)
    elif iteration == LOADER:
        watched.before_batch.append(NextBatch(mark))
    elif iteration == MARKS:
        put(undo, explicit_marks, "arrived", mark)


def after(function: Callable[..., Any], mark: Mark) -> Callable[..., Any]:
    """A function that marks when it returns."""

    @functools.wraps(function)
    def marked(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        mark()
        return result

    return marked


class Every:
    """Passes on every n-th mark."""

    def __init__(self, count: int, mark: Mark) -> None:
        self._count, self._mark, self._seen = count, mark, 0

    def __call__(self) -> None:
        self._seen += 1
        if self._seen % self._count == 0:
            self._mark()


class NextBatch:
    """Marks when a batch to train on is asked for, but for the first."""

    def __init__(self, mark: Mark) -> None:
        self._mark, self._seen = mark, 0

    def __call__(self) -> None:
        if torch.is_grad_enabled():
            self._seen += 1
            if self._seen > 1:
                self._mark()


class UpdateCycle:
    """Marks the last update of a cycle.

    Of one optimiser every update is one. Where several exist, as in a GAN, their order is watched until it
    has repeated itself once; one that goes on alone is taken at its word after `PATIENCE` updates. What is
    updated in one call, such as a backward pass whose hooks update, is one update.
    """

    def __init__(self, watched: Watched, mark: Mark) -> None:
        self._watched, self._mark = watched, mark
        self._updates: list[Hashable] = []
        self._known = set[int]()
        self._length = self._place = 0

    def __call__(self, update: tuple[int, ...]) -> None:
        if self._length:
            self._place = (self._place + 1) % self._length
        else:
            self._updates.append(update)
            self._known.update(update)
            self._length = self._found()
        if self._length and not self._place:
            self._mark()

    def _found(self) -> int:
        """Length of the cycle that the updates so far end with; 0 while it is not known."""
        updates, different = self._updates, len(set(self._updates))
        if different == 1:
            return int(len(self._watched.made) <= len(self._known) or len(updates) >= PATIENCE)
        for length in range(different, len(updates) // 2 + 1):
            if updates[-1] != updates[-1 - length]:
                continue
            last, before = updates[-length:], updates[-2 * length : -length]
            if last == before and len(set(last)) == different:
                return length
        return int(len(updates) >= 4 * max(PATIENCE, different))


def ends_of(iteration: str) -> str:
    """How the kind of an iteration is told to the user."""
    told = {
        OPTIMIZER: "an optimiser's step",
        BACKWARD: "backward",
        LOADER: "a batch",
        MARKS: "perfsweep.mark()",
    }
    return told.get(iteration, iteration)
