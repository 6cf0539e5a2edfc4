"""What is seen of a script while it runs: its batches, models, losses and optimisers.

All of it is seen from PyTorch's side, by hooks that cost a few microseconds an iteration, the same in every
arm. None of them is a forward hook: those break a script's own `torch.compile`.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import get_ident
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import dataloader

from perfsweep.workloads.api import Clock, NullClock
from perfsweep.workloads.script.batches import Rows, asked_of, dense, length_of, rows_of, tensors_of
from perfsweep.workloads.script.compiled_calls import CompiledCalls
from perfsweep.workloads.script.replaced import put

KEPT_LOSSES = 1000
FRUITLESS = 1000
"""Backward passes without an optimiser, after which a script may be told to end iterations otherwise."""
LONGEST_CADENCE = 50
"""Iterations of an epoch that timed regions are aligned to; one of a longer epoch would take too long."""


class Watched:
    """What a script has shown so far.

    Attributes
    ----------
    counts : examples, batches, iterations, backward_calls, optimizer_steps, since set-up
    in_setup : the same, until the first mark
    iterators : over loaders, as far as the script still holds them
    made : optimisers that exist, whether they have made a step or not
    optimizers : the ones that have made a step, in the order of their first one
    modules : outermost modules with parameters that were called before the first mark and outlived it
    input_dims : dimensions of the tensors that each of them was given
    closures : optimisers that computed their gradients inside `step`, before the first mark
    passes : calls of `torch.autograd.backward` and `torch.autograd.grad` since set-up, whatever of
    backward : what a call of `torch.autograd.backward` runs; the losses are kept as they were before it
    before_backward : told of what backward is called on
    after_backward : called when it returns
    leaves : tensors that a script without modules and optimisers updates
    next_batch : what gives the next batch of an iterator over a loader
    clock : on which the time that the script waits for batches is marked
    over : told of updates, by ids of their optimisers, after the call that they are part of: `step`, a
        backward pass whose hooks update, or `GradScaler.step`, even where that leaves the update out
    after_batch : told of each batch and of the iterator that it is from
    end_of_iteration : called at every mark
    called : told of each call of an outermost module before the first mark: by whom, with what, the result
    fruitless : called after so many backward passes that no optimiser has used
    looking : whether the first mark is still to come
    epoch : batches of an epoch of the first loader that says so; 0 where none does
    losses : [] each, of the iterations so far: the sum of what `backward` was called on
    """

    def __init__(self, undo: ExitStack) -> None:
        self.counts = Counter[str]()
        self.in_setup = Counter[str]()
        self.iterators = WeakSet[Any]()
        self.made = WeakSet[Optimizer]()
        self.optimizers: list[Optimizer] = []
        self._found: tuple[nn.Module, ...] = ()
        self.losses: deque[Tensor] = deque(maxlen=KEPT_LOSSES)
        self.before_update: list[Callable[[Optimizer], None]] = []
        self.after_update: list[Callable[[Optimizer], None]] = []
        self.over: list[Callable[[tuple[int, ...]], None]] = []
        self.before_batch: list[Callable[[], None]] = []
        self.after_batch: list[Callable[[Any, Any], None]] = []
        self.before_backward: list[Callable[[Any], None]] = []
        self.after_backward: list[Callable[[], None]] = []
        self.leaves: list[Tensor] = []
        self.end_of_iteration: list[Callable[[], None]] = []
        self.called: list[Callable[[FrameType, nn.Module, Any, Any], None]] = []
        self.input_dims = WeakKeyDictionary[nn.Module, set[int]]()
        self.closures: set[str] = set()
        self.backward: Callable[..., None] = torch.autograd.backward
        self.clock: Clock | type[NullClock] = NullClock
        self._thread = get_ident()
        self.fruitless: Callable[[], None] = _go_on
        self._slots: list[Tensor] = []
        self._loss: Tensor | None = None
        self._step: FrameType | None = None
        self.passes = 0
        self._calls = 0
        self._within: dict[int, None] = {}
        self._called_within = WeakKeyDictionary[nn.Module, list[ref[nn.Module]]]()
        self._around: list[ref[nn.Module]] = []
        self._rows = Rows()
        self._inputs = Rows()
        self.looking = True
        self.epoch = 0
        self._until_found = ExitStack()
        self._traced = (
            (nn.Module, "__call__", nn.Module.__call__),
            (torch.autograd, "grad", torch.autograd.grad),
            (torch.amp.GradScaler, "step", torch.amp.GradScaler.step),
        )
        self._own_passes = WeakSet[Optimizer]()
        self._passes_before = 0
        self.compiled = CompiledCalls(lambda: self.made, self._aside, self._before_compiled, self._compiled)
        self.compiled.first = self._keep_out_of_compiled_code
        self.compiled.watch(undo)
        undo.push(self._until_found)
        self._watch_updates(undo)
        self._watch_scalers(undo)
        self._watch_losses(undo)
        self._watch_batches(undo)
        self._watch_modules()

    def end_iteration(self) -> None:
        """Take note that an iteration has ended."""
        self.counts["iterations"] += 1
        if self._loss is not None:
            self.losses.append(self._loss)
            self._loss = None
        for tell in tuple(self.end_of_iteration):
            tell()

    def end_search(self) -> None:
        """Look for models no more, and count again: calls of modules cost what they cost the script."""
        self.in_setup = Counter(self.counts)
        self.counts.clear()
        self.passes = 0
        self.looking = self.compiled.listening = False
        self._until_found.close()
        gc.collect()  # a module that is made for one call may be part of a cycle
        self._found = self.modules

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """The outermost modules that are there: what a library made for one call only is not called again."""
        within = self._called_within.items()
        return self._found or tuple(one for one, around in within if all(outer() is None for outer in around))

    @property
    def cadence(self) -> int:
        """Iterations of an epoch, so that what happens between two of them counts; 1 for long epochs."""
        iterations = self.iterations_of_epoch
        return iterations if 1 < iterations <= LONGEST_CADENCE else 1

    @property
    def iterations_of_epoch(self) -> int:
        """Iterations of an epoch of the first loader that says so; 0 where none does."""
        each = min(self.in_setup["batches"], self.in_setup["backward_calls"]) or 1
        return -(-self.epoch // each)

    def total(self, name: str) -> int:
        """A count since the script began, set-up included."""
        return self.in_setup[name] + self.counts[name]

    @property
    def data_digest(self) -> str:
        """SHA-256 of the first rows of the first batches, or of the first inputs of the models."""
        return self._rows.digest or self._inputs.digest

    def parameters(self) -> list[Tensor]:
        """What the optimisers update, each parameter once; without optimisers those of the models."""
        groups = (group for one in self.optimizers for group in one.param_groups)
        updated = dict.fromkeys(parameter for group in groups for parameter in group["params"])
        of_modules = dict.fromkeys(p for module in self.modules for p in nn.Module.parameters(module))
        return list(updated or of_modules) or self.leaves

    def _watch_updates(self, undo: ExitStack) -> None:
        self._hooks = ExitStack()
        undo.callback(lambda: self._hooks.close())
        self._hook()
        making = Optimizer.__init__

        def watched(one: Optimizer, *args: Any, **kwargs: Any) -> None:
            making(one, *args, **kwargs)
            self.made.add(one)

        put(undo, Optimizer, "__init__", watched)

    def _hook(self) -> None:
        self._hooks.callback(register_optimizer_step_pre_hook(self._before_update).remove)
        self._hooks.callback(register_optimizer_step_post_hook(self._after_update).remove)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Take off whatever compiled code would be traced with."""
        with self._call(), ExitStack() as put_back:
            self._hooks.close()
            put_back.callback(self._hook)
            for owner, name, value in self._traced:
                if (now := getattr(owner, name)) is not value:
                    put_back.callback(setattr, owner, name, now)
                    setattr(owner, name, value)
            self._passes_before = self.passes
            yield

    def _keep_out_of_compiled_code(self) -> None:
        """Have Dynamo leave backward passes to us where it leaves them to PyTorch."""
        torch.autograd.backward = torch._dynamo.disable(torch.autograd.backward)  # type: ignore[assignment]

    def _before_compiled(self, one: Optimizer) -> None:
        """Tell of gradients that a compiled function is about to use."""
        if self._told_early(one):
            for tell in self.before_update:
                tell(one)

    def _compiled(self, one: Optimizer, expected: bool) -> None:
        """Take note of an update within a compiled function that has returned."""
        if one not in self.optimizers:
            self.optimizers.append(one)
        if self.passes > self._passes_before:  # of gradients that it has computed itself
            self._own_passes.add(one)
        if not (expected and self._told_early(one)):
            for tell in self.before_update:
                tell(one)
        self.counts["optimizer_steps"] += 1
        for tell in self.after_update:
            tell(one)
        self._updated(one)

    def _told_early(self, one: Optimizer) -> bool:
        return one not in self._own_passes

    def _before_update(self, one: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        caller = sys._getframe(1)
        if self._step is not None and _called_from(self._step, caller):
            return None  # a class whose step calls its parent's
        self._step = caller  # not a count, which would stay raised where a step raises: no hook is told of it
        if one not in self.optimizers:
            self.optimizers.append(one)
        if self.looking and _closure_of(args, kwargs) is not None:
            self.closures.add(type(one).__name__)
        if not self.before_update:
            return None
        return self._told_before_update(one, args, kwargs)

    def _told_before_update(self, one: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """Tell that gradients are ready: now, or with a closure once it has computed them."""

        def ready() -> None:
            for tell in self.before_update:
                tell(one)

        closure = _closure_of(args, kwargs)
        if closure is None:
            ready()
            return None

        def told() -> Any:
            result = closure()
            ready()
            return result

        rest = {name: value for name, value in kwargs.items() if name != "closure"}
        return (args[0], told, *args[2:]), rest

    def _after_update(self, one: Optimizer, args: Any, kwargs: Any) -> None:
        if sys._getframe(1) is not self._step:
            return
        self._step = None
        self.counts["optimizer_steps"] += 1
        for tell in self.after_update:
            tell(one)
        self._updated(one)

    def _updated(self, one: Optimizer) -> None:
        """Tell of an update, or keep it until the call that it is part of has ended.

        Hooks of a backward pass may run in a thread of autograd's, where no script can be interrupted.
        """
        self._within.setdefault(id(one))
        if not self._calls:
            self._tell_over()

    def _tell_over(self) -> None:
        if self._within:
            updates = tuple(sorted(self._within))
            self._within.clear()
            for tell in self.over:
                tell(updates)

    @contextmanager
    def _call(self) -> Iterator[None]:
        """A call of the script's within which updates are no ends: the end comes with its return."""
        if get_ident() != self._thread:
            yield
            return
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
        if not self._calls:
            self._tell_over()

    def _watch_scalers(self, undo: ExitStack) -> None:
        """See the updates that a script's own scaler leaves out, since gradients overflowed."""
        scaling = torch.amp.GradScaler.step

        @functools.wraps(scaling)
        def step(scaler: torch.amp.GradScaler, one: Optimizer, *args: Any, **kwargs: Any) -> Any:
            with self._call():
                before = self.counts["optimizer_steps"]
                result = scaling(scaler, one, *args, **kwargs)
                if self.counts["optimizer_steps"] == before:
                    self.skipped(one)
            return result

        put(undo, torch.amp.GradScaler, "step", step)

    def skipped(self, one: Optimizer) -> None:
        """Take note of an update that was left out: it ends an iteration like any other."""
        self.counts["skipped_updates"] += 1
        if one not in self.optimizers:
            self.optimizers.append(one)
        self._updated(one)

    def _watch_losses(self, undo: ExitStack) -> None:
        def watched(tensors: Any, *args: Any, **kwargs: Any) -> None:
            for tell in tuple(self.before_backward):
                tell(tensors)
            self.passes += 1
            with self._call():
                self._backward(tensors, *args, **kwargs)
            for told in tuple(self.after_backward):
                told()

        put(undo, torch.autograd, "backward", watched)
        computing = torch.autograd.grad

        @functools.wraps(computing)
        def gradients(*args: Any, **kwargs: Any) -> Any:
            self.passes += 1
            return computing(*args, **kwargs)

        put(undo, torch.autograd, "grad", gradients)

    def _backward(self, tensors: Any, *args: Any, **kwargs: Any) -> None:
        self.backward(tensors, *args, **kwargs)
        loss = tensors if isinstance(tensors, Tensor) else None
        if loss is None or loss.numel() != 1:
            return
        self.counts["backward_calls"] += 1
        if self.looking and not self.optimizers and self.counts["backward_calls"] == FRUITLESS:
            self.fruitless()
        self._keep(loss.detach())

    def _keep(self, loss: Tensor) -> None:
        """Add a loss to its iteration's.

        In memory of ours that is there from the first one on: CUDA graphs overwrite the script's own, and a
        small block that stays takes the hole from the next large one, so that each iteration's heap grows.
        """
        if type(loss) is not Tensor:  # spread over processes
            self._loss = loss.clone() if self._loss is None else self._loss + loss
            return
        if not self._slots:
            one_more = torch.zeros(KEPT_LOSSES + 1, dtype=loss.dtype, device=loss.device)
            self._slots.extend(one_more.unbind())
        if self._loss is None:
            self._loss = self._slots[self.total("iterations") % len(self._slots)].copy_(loss.reshape(()))
        else:
            self._loss.add_(loss.reshape(()))

    def _watch_batches(self, undo: ExitStack) -> None:
        self.next_batch = dataloader._BaseDataLoaderIter.__next__

        def watched(batches: Any) -> Any:
            for tell in self.before_batch:
                tell()
            # A thread of the script's own may load too, and a clock has one time line.
            clock = self.clock if get_ident() == self._thread else NullClock
            with clock.phase("data"):
                batch = self.next_batch(batches)
            for told in self.after_batch:
                told(batches, batch)
            if torch.is_grad_enabled():  # what a script evaluates on is no example that it trains on
                self.counts["batches"] += 1
                self.counts["examples"] += rows_of(batch, asked_of(batches))
                self.counts["worker_batches"] += getattr(batches, "_num_workers", 0) > 0
                if self.looking:
                    self.iterators.add(batches)
                    self._rows.add(batch)
                    self.epoch = self.epoch or length_of(batches)
            return batch

        put(undo, dataloader._BaseDataLoaderIter, "__next__", watched)

    def _watch_modules(self) -> None:
        calling = nn.Module.__call__

        def watched(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if next(nn.Module.parameters(module), None) is None:
                return calling(module, *args, **kwargs)
            outermost = not self._around
            if module.training:
                self._called_within.setdefault(module, list(self._around))
                dims = {tensor.dim() for tensor in tensors_of((args, kwargs))}
                self.input_dims.setdefault(module, set()).update(dims)
                if outermost:
                    self._inputs.add((args, kwargs))
            self._around.append(ref(module))
            try:
                result = calling(module, *args, **kwargs)
            finally:
                self._around.pop()
            if outermost:
                for told in self.called:
                    told(sys._getframe(1), module, (args, kwargs), result)
            return result

        put(self._until_found, nn.Module, "__call__", watched)


def _go_on() -> None: ...


def _called_from(outer: FrameType, inner: FrameType) -> bool:
    """Whether the function of one frame, still running, is what led to the other."""
    frame = inner.f_back
    while frame is not None and frame is not outer:
        frame = frame.f_back
    return frame is outer


def _closure_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What an optimiser's step was told to compute its gradients with; `args` begin with the optimiser."""
    return args[1] if len(args) > 1 else kwargs.get("closure")


def gradients_of(parameters: Iterable[Tensor]) -> Tensor:
    """Gradients of all parameters in a row, as `flat`; zeros for parameters that have none."""
    return flat(p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters)


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """All values of `tensors` in a row, float32, on the host."""
    parts = [dense(tensor.detach()).float().flatten().cpu() for tensor in tensors]
    return torch.cat(parts) if parts else torch.zeros(0)
