"""Functions that a script has compiled: nothing of ours is traced into them, and updates are seen outside.

An optimiser's hooks that are called within compiled code would become part of it. So they are taken off while
such a function runs, and what it has updated is told once the outermost of them has returned.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from perfsweep.workloads.script.replaced import put

LEARNING = 64
"""Calls of a function after which it is known not to update anything."""
LOOKED_AT = 4
"""Parameters of an optimiser that are looked at, and of each so many values."""
VALUES = 64


class CompiledCalls:
    """Calls of the functions that a script gives to `torch.compile`.

    Parameters
    ----------
    optimizers : gives the ones that exist
    aside : takes everything that is put in PyTorch's place off for a block
    updated : told of the optimisers that a call has updated, when it has returned

    Attributes
    ----------
    made : functions that were compiled
    listening : whether what is compiled is the script's; a level's code is not
    first : called before the first function is compiled
    """

    def __init__(
        self,
        optimizers: Callable[[], Iterable[Optimizer]],
        aside: Callable[[], Any],
        before: Callable[[Optimizer], None],
        updated: Callable[[Optimizer, bool], None],
    ) -> None:
        self.made = 0
        self.listening = True
        self.first: Callable[[], None] = lambda: None
        self._optimizers, self._aside = optimizers, aside
        self._before, self._updated = before, updated
        self._running = False

    def watch(self, undo: ExitStack) -> None:
        """Put a function in the place of `torch.compile`."""
        compiling = torch.compile

        @functools.wraps(compiling)
        def compile(model: Any = None, **options: Any) -> Any:
            if not self.listening or options.get("backend") == "eager":
                return compiling(model, **options)
            if model is None:
                return lambda model: compile(model, **options)
            if not self.made:
                self.first()
            self.made += 1
            return self._outside(compiling(model, **options))

        put(undo, torch, "compile", compile)

    def _outside(self, compiled: Any) -> Any:
        """A compiled function with our part around it; modules and classes update nothing."""
        if isinstance(compiled, nn.Module) or inspect.isclass(compiled):
            return compiled
        known = _Known()

        @functools.wraps(compiled)
        def called(*args: Any, **kwargs: Any) -> Any:
            if self._running:
                return compiled(*args, **kwargs)
            with self._call(known):
                return compiled(*args, **kwargs)

        # Dynamo traces into the original of a wrapper that it knows by this as its own.
        called._torchdynamo_wrapper_id = id(called)  # type: ignore[attr-defined]
        return called

    @contextmanager
    def _call(self, known: _Known) -> Iterator[None]:
        self._running = True
        try:
            expected = known.expected()
            for one in expected:
                self._before(one)
            known.before(self._optimizers())
            with self._aside():
                yield
            for one in known.after():
                self._updated(one, one in expected)
        finally:
            self._running = False


class _Known:
    """What is known of the updates within one function."""

    def __init__(self) -> None:
        self._calls = 0
        self._updates: dict[Optimizer, bool] = {}  # each with whether versions of its parameters tell
        self._prints: dict[Optimizer, Any] = {}
        self._versions: dict[Optimizer, list[int]] = {}

    def expected(self) -> list[Optimizer]:
        """Optimisers that the last calls have updated."""
        return list(self._updates)

    def before(self, optimizers: Iterable[Optimizer]) -> None:
        """Look at the optimisers before a call."""
        self._calls += 1
        self._versions = {one: _versions(one) for one in self._updates}
        learning = self._calls <= LEARNING and not self._updates
        self._prints = {one: _print_of(one) for one in optimizers} if learning else {}

    def after(self) -> list[Optimizer]:
        """Tensors that the call has updated."""
        for one, before in self._prints.items():
            now = _print_of(one)
            if now != before:
                self._updates[one] = now[0] != before[0]
                self._versions.setdefault(one, before[0])
        return [
            one
            for one, told in self._updates.items()
            if not told or _versions(one) != self._versions.get(one)
        ]


def _some_of(one: Optimizer) -> list[Tensor]:
    every = [parameter for group in one.param_groups for parameter in group["params"]]
    return every[:: max(1, len(every) // LOOKED_AT)][:LOOKED_AT]


def _versions(one: Optimizer) -> list[int]:
    return [parameter._version for parameter in _some_of(one)]


def _print_of(one: Optimizer) -> tuple[list[int], list[Any], int]:
    """What an update changes of an optimiser: versions, values, or at least its state."""
    values = [parameter.detach().flatten()[:VALUES].tolist() for parameter in _some_of(one)]
    steps = [state["step"] for state in list(one.state.values())[:1] if "step" in state]
    return _versions(one), [*values, *map(float, steps)], len(one.state)
