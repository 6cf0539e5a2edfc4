"""Implementations of updates: what a script asks for, and what it is given instead."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch.optim import Optimizer

from perfsweep.workloads.script.call_sites import CallSites, by_position
from perfsweep.workloads.script.edits.site import OPTIMIZER
from perfsweep.workloads.training.updates import UPDATES


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

        undo.callback(setattr, cls, "__init__", making)
        cls.__init__ = made  # type: ignore[method-assign]

    def _instead(self, cls: type[Optimizer]) -> Mapping[str, bool]:
        options = options_of(cls)
        if self.level not in options:
            return {}
        return {name: value for name, value in UPDATES[self.level].items() if name in options}


def options_of(cls: type[Optimizer]) -> set[str]:
    """The implementations that a class of torch.optim can be asked for."""
    return {"foreach", "fused"} & set(inspect.signature(cls.__init__).parameters)
