"""Seeds that a script sets itself, moved by the seed of a trial: its runs differ as those of others do."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch


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
        undo.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, _moved(getattr(owner, name), by))


def _moved(seed: Callable[..., Any], by: int) -> Callable[..., Any]:
    @functools.wraps(seed)
    def moved(*args: Any, **kwargs: Any) -> Any:
        return seed(*(_plus(one, by) for one in args), **{k: _plus(one, by) for k, one in kwargs.items()})

    return moved


def _plus(seed: Any, by: int) -> Any:
    return (seed + by) % 2**32 if isinstance(seed, int) and not isinstance(seed, bool) else seed
