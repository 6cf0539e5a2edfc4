"""A graph of the pretended GPU: operators recorded once, and done again on the very same tensors.

As on the device, a capture changes nothing, and a replay reads and writes the memory of its capture and
nothing else: whoever puts another tensor in the place of one that was captured is not seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from pretend_cuda.tensors import OnDevice, listeners, run, waits

modes: list[str] = []
"""How strict each capture was about other threads."""


class CUDAGraph:
    """Operators on the device, in the order in which they were captured."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._done: list[tuple[Any, Any, Any, Any]] = []
        self._before: dict[int, tuple[Tensor, Tensor]] = {}
        self._states: dict[torch.Generator, Tensor] = {}

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Random numbers go on where the last replay stopped: they do here."""

    def before(self, func: Any, args: Any, kwargs: Any) -> None:
        """Remember what an operator writes over, and where random numbers stand."""
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Generator):
                self._states.setdefault(leaf, leaf.get_state())
        for written in _written(func, args, kwargs):
            whole = torch.empty(0, dtype=torch.uint8).set_(written.host.untyped_storage())
            self._before.setdefault(whole.data_ptr(), (whole, whole.clone()))

    def after(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Remember an operator with the tensors that it read and made."""
        self._done.append((func, args, kwargs, result))

    def undo(self) -> None:
        """Put back what the capture changed: on the device nothing has run."""
        for whole, content in self._before.values():
            whole.copy_(content)
        for generator, state in self._states.items():
            generator.set_state(state)

    def replay(self) -> None:
        """Do all of it again, each result in the memory of the first one."""
        for func, args, kwargs, result in self._done:
            again = run(func, args, kwargs)
            for kept, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                if isinstance(kept, OnDevice) and kept.host.data_ptr() != new.host.data_ptr():
                    kept.host.copy_(new.host)


class GraphedSteps:
    """The life of results of graphed code: until the first call after the next step has begun.

    Overwriting them is what a graph's replay does to whatever still looks at them.
    """

    def __init__(self) -> None:
        self._begun = False
        self._results: list[Tensor] = []

    def begin(self) -> None:
        """What was returned before may be overwritten from here on."""
        self._begun = True

    def called(self) -> None:
        """Graphed code is about to run."""
        if self._begun:
            for host in self._results:
                _spoil(host)
            self._results.clear()
            self._begun = False

    def returned(self, results: list[Tensor]) -> None:
        """Results in memory of the graphs."""
        self._results += results


graphed_steps = GraphedSteps()


def _spoil(host: Tensor) -> None:
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        whole = torch.empty(0, dtype=host.dtype).set_(host.untyped_storage())
        if host.is_floating_point():
            whole.fill_(float("nan"))
        else:
            whole.fill_(host.dtype == torch.bool or torch.iinfo(host.dtype).max)


class _Memory:
    """Hears which storages operators make."""

    def __init__(self) -> None:
        self.made: set[int] = set()

    def before(self, func: Any, args: Any, kwargs: Any) -> None:
        """Nothing is made yet."""

    def after(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """What an operator returns, and was not given, is new."""
        given = {_storage(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, OnDevice)}
        results = (leaf for leaf in tree_leaves(result) if isinstance(leaf, OnDevice))
        self.made |= {_storage(leaf) for leaf in results} - given


def _storage(tensor: OnDevice) -> int:
    return tensor.host.untyped_storage().data_ptr()


def compiled(function: Any = None, *, mode: str | None = None, **_: Any) -> Any:
    """In the place of `torch.compile`: code as it is written, and with graphs what these ask of it.

    Inside nothing may wait, and results last as `GraphedSteps` says. What is compiled of a backward pass is
    not looked at.
    """
    if function is None:
        return lambda inner: compiled(inner, mode=mode)
    if mode != "reduce-overhead":
        return function

    def graphed(*args: Any, **kwargs: Any) -> Any:
        graphed_steps.called()
        memory = _Memory()
        listeners.append(memory)
        waits.capturing = waits.makes_constants = True
        try:
            found = function(*args, **kwargs)
        finally:
            waits.capturing = waits.makes_constants = False
            listeners.remove(memory)
        leaves = (leaf for leaf in tree_leaves(found) if isinstance(leaf, OnDevice))
        graphed_steps.returned([leaf.host for leaf in leaves if _storage(leaf) in memory.made])
        return found

    return graphed


def _written(func: Any, args: Any, kwargs: Any) -> Iterator[OnDevice]:
    """Tensors of the device that an operator changes in place."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            yield from (leaf for leaf in tree_leaves(given) if isinstance(leaf, OnDevice))


@contextlib.contextmanager
def captured(graph: CUDAGraph, *_: Any, capture_error_mode: str = "global", **__: Any) -> Iterator[None]:
    """Capture what is done inside; waiting ends the capture, as on the device."""
    modes.append(capture_error_mode)
    listeners.append(graph)
    waits.capturing = True
    try:
        yield
    finally:
        waits.capturing = False
        listeners.remove(graph)
        with torch.utils._python_dispatch._disable_current_modes():
            graph.undo()
