"""fp16's loss scaling around a script's own backward passes, clipping and updates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad
from torch.optim import Optimizer

from perfsweep.workloads.errors import UnsupportedHere
from perfsweep.workloads.script.replaced import put
from perfsweep.workloads.script.watched import Watched

CLIPPING = ("clip_grad_norm_", "clip_grad_value_")


class Clipping:
    """The functions that clip gradients, with what must be done to the gradients before.

    They are replaced before the script imports them by name, and pass through until `before` is set.
    """

    def __init__(self) -> None:
        self.before: Callable[[list[Tensor]], None] = lambda parameters: None

    def watch(self, undo: ExitStack) -> None:
        """Put them in place of PyTorch's."""
        for name in CLIPPING:
            clipping = getattr(clip_grad, name)
            for owner in (clip_grad, torch.nn.utils):
                put(undo, owner, name, self._told(clipping))

    def _told(self, clipping: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(clipping)
        def clip(parameters: Tensor | Iterable[Tensor], *args: Any, **kwargs: Any) -> Any:
            listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
            self.before(listed)
            return clipping(listed, *args, **kwargs)

        return clip


class LossScaling:
    """A `GradScaler` that a script knows nothing of.

    Losses are scaled where backward is called on them; gradients unscaled once before they are clipped or
    applied; an update whose gradients overflowed is left out. The scale
    changes when every optimiser has made its update, and not before the next backward pass: gradients that
    are added up, or computed for several optimisers at once, keep one scale.
    """

    def __init__(self, scaler: torch.amp.GradScaler, watched: Watched, clipping: Clipping) -> None:
        self._scaler, self._watched, self._clipping = scaler, watched, clipping
        self._backward = watched.backward
        self._unscaled = set[int]()  # ids of optimisers
        self._stepped = set[int]()
        self._updating: Callable[..., Any] | None = None

    def begin(self) -> None:
        """Scale from the next backward pass on."""
        self._watched.backward = self._scaled_backward
        self._clipping.before = self._unscale_owners
        self._owners = {id(one): owner for owner in self._watched.made for one in _parameters(owner)}
        for one in list(self._watched.made):
            one.step = functools.wraps(one.step)(functools.partial(self._step, one, one.step))  # type: ignore[method-assign]

    def _scaled_backward(self, tensors: Any, *args: Any, **kwargs: Any) -> None:
        # An iteration of batches may end before the first update of all, when no optimiser is known yet.
        if self._stepped and self._stepped.issuperset(map(id, self._watched.optimizers)):
            self._scaler.update()
            self._stepped.clear()
        self._backward(self._scaler.scale(tensors), *args, **kwargs)

    def _unscale_owners(self, parameters: list[Tensor]) -> None:
        owners = {self._owners[id(one)] for one in parameters if id(one) in self._owners}
        for owner in owners:
            self._unscale(owner)

    def _unscale(self, one: Optimizer) -> None:
        if id(one) in self._unscaled:
            return
        if id(one) in self._stepped:  # a second update of one optimiser before the first of another
            self._scaler.update(self._scaler.scale(torch.ones((), device=next(_parameters(one)).device)))
            self._stepped.discard(id(one))
        self._scaler.unscale_(one)
        self._unscaled.add(id(one))

    def _step(self, one: Optimizer, update: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._updating is not None:  # called by the scaler, or by a class whose step calls its parent's
            return update(*args, **kwargs)
        if any(given is not None for given in (*args, *kwargs.values())):
            raise UnsupportedHere(
                "toggles.amp=fp16: an optimiser was given a closure, where no update can be skipped"
            )
        if all(parameter.grad is None for parameter in _parameters(one)):
            return update()
        self._unscale(one)
        return self._step_scaled(one, update)

    def _step_scaled(self, one: Optimizer, update: Callable[..., Any]) -> Any:
        self._updating = update
        try:
            result = self._scaler.step(one)
        finally:
            self._updating = None
            self._unscaled.discard(id(one))
            self._stepped.add(id(one))
        return result


def _parameters(one: Optimizer) -> Iterator[Tensor]:
    for group in one.param_groups:
        yield from group["params"]
