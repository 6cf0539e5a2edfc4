"""Whether a script seeds the generators that it draws from, and its own seeds moved by that of a trial.

perfsweep seeds them before any script begins.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch

from perfsweep.workloads.script.replaced import put

_SEEDS: dict[str, tuple[tuple[tuple[Any, str], ...], Callable[[], Any]]] = {
    "torch": (((torch, "manual_seed"), (torch.random, "manual_seed")), lambda: bytes(torch.get_rng_state())),
    "numpy": (((np.random, "seed"),), lambda: _numpy_state()),
    "random": (((random, "seed"),), random.getstate),
}
"""By library: the functions that seed its generator, and what tells whether something was drawn from it."""


def _numpy_state() -> tuple[bytes, Any]:
    _, keys, place, *_ = np.random.get_state(legacy=True)
    return np.asarray(keys).tobytes(), place


class Seeding:
    """What a script does with the generators of the process, from `watch` to `end`.

    Attributes
    ----------
    missing : libraries whose generator it has drawn from before it was seeded: data sets seed it for a moment
        for each example, when the model has long been drawn
    """

    def __init__(self) -> None:
        self.missing: tuple[str, ...] = ()
        self._seeded = set[str]()
        self._unseeded = set[str]()
        self._before: dict[str, Any] = {}
        self._until_end = ExitStack()

    def watch(self, undo: ExitStack) -> None:
        """Begin to look."""
        undo.push(self._until_end)
        for library, (functions, state) in _SEEDS.items():
            self._before[library] = state()
            for owner, name in functions:
                put(self._until_end, owner, name, self._told(library, getattr(owner, name)))

    def end(self) -> None:
        """Look no more."""
        self._until_end.close()
        for library in _SEEDS:
            self._drawn_from(library)
        self.missing = tuple(library for library in _SEEDS if library in self._unseeded)

    def _drawn_from(self, library: str) -> None:
        """Take note of a generator that was drawn from before anything seeded it."""
        _, state = _SEEDS[library]
        if library not in self._seeded and state() != self._before[library]:
            self._unseeded.add(library)

    def _told(self, library: str, seed: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(seed)
        def told(*args: Any, **kwargs: Any) -> Any:
            self._drawn_from(library)
            self._seeded.add(library)
            return seed(*args, **kwargs)

        return told


def move(by: int, undo: ExitStack) -> None:
    """Add `by` to every whole number that the script seeds with, until `undo`."""
    if not by:
        return
    for owner, name in (
        (torch, "manual_seed"),
        (torch.random, "manual_seed"),
        (random, "seed"),
        (np.random, "seed"),
        (np.random, "default_rng"),
    ):
        put(undo, owner, name, _moved(getattr(owner, name), by))


def _moved(seed: Callable[..., Any], by: int) -> Callable[..., Any]:
    @functools.wraps(seed)
    def moved(*args: Any, **kwargs: Any) -> Any:
        return seed(*(_plus(one, by) for one in args), **{k: _plus(one, by) for k, one in kwargs.items()})

    return moved


def _plus(seed: Any, by: int) -> Any:
    return (seed + by) % 2**32 if isinstance(seed, int) and not isinstance(seed, bool) else seed
