"""What a script does itself of what the toggles would do from outside: seen, and then not done twice."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.attention
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import checkpoint as recomputing

from perfsweep.workloads.script.batches import tensors_of
from perfsweep.workloads.script.call_sites import CallSites
from perfsweep.workloads.script.edits.site import RESET
from perfsweep.workloads.script.replaced import put
from perfsweep.workloads.script.watched import Watched

Counts = Callable[[Any, Mapping[str, Any]], bool]
"""Whether a call counts, by its arguments after it."""

_AUTOCASTS, _SCALES, _COMPILES = "autocasts", "scales its losses", "calls torch.compile"
_ATTENDS, _RECOMPUTES = "chooses the kernels of its attention", "recomputes activations"


def _always(args: Any, kwargs: Mapping[str, Any]) -> bool:
    return True


def _enabled(args: Any, kwargs: Mapping[str, Any]) -> bool:
    return args[0]._enabled  # libraries enter disabled ones for parts that must stay in float32


def _generates_code(args: Any, kwargs: Mapping[str, Any]) -> bool:
    return kwargs.get("backend") != "eager"  # as PyTorch's own higher order operators compile themselves


_CALLS: tuple[tuple[Any, str, str, str, Counts], ...] = (
    (torch.autocast, "__enter__", "amp", _AUTOCASTS, _enabled),
    (torch.amp.GradScaler, "__init__", "amp", _SCALES, _enabled),
    (torch, "compile", "compile", _COMPILES, _generates_code),
    (torch.nn.attention, "_sdpa_kernel", "sdpa", _ATTENDS, _always),
    # The two ways through `checkpoint`, which libraries and scripts import by name.
    (recomputing, "_checkpoint_without_reentrant_generator", "grad_checkpointing", _RECOMPUTES, _always),
    (recomputing.CheckpointFunction, "forward", "grad_checkpointing", _RECOMPUTES, _always),
)
"""Owner and name of a function, the toggle whose work it does, that work, and which calls of it count."""

_SETTINGS: Mapping[str, tuple[Callable[[], Any], str]] = {
    "tf32": (lambda: torch.backends.cuda.matmul.fp32_precision, "sets the precision of its products"),
    "cudnn_benchmark": (lambda: torch.backends.cudnn.benchmark, "sets cuDNN's benchmark"),
    "threads": (torch.get_num_threads, "sets its number of threads"),
    "sdpa": (lambda: enabled_kernels(), _ATTENDS),
    "gc": (lambda: (gc.isenabled(), gc.get_threshold()), "sets Python's collector"),
}
"""What the process is set to by a toggle: how it is read, and what changing it is called."""


def enabled_kernels() -> tuple[bool, ...]:
    """Which of flash, memory-efficient, cuDNN and plain attention may be chosen."""
    cuda = torch.backends.cuda
    ask = (
        cuda.flash_sdp_enabled,
        cuda.mem_efficient_sdp_enabled,
        cuda.cudnn_sdp_enabled,
        cuda.math_sdp_enabled,
    )
    return tuple(bool(enabled()) for enabled in ask)


class OwnChoices:
    """What was seen until the first mark.

    Attributes
    ----------
    reasons : what the script does itself, by toggle
    drops_gradients : how it asked for gradients to be reset: by dropping them (True), by zeroing (False);
        complete at the end of the first iteration after the first mark, since many scripts reset them last
    drops_instead : how they are reset whatever was asked for; None: as asked for
    complete : whether nothing more is looked for
    until_first_mark : puts back what is replaced to look until then
    frozen_before : objects that the collector did not look at when the script started
    """

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.drops_gradients: set[bool] = set()
        self.drops_instead: bool | None = None
        self.complete = False
        self.frozen_before = gc.get_freeze_count()
        self._before: dict[str, Any] = {}
        self.until_first_mark = ExitStack()
        self._until_complete = ExitStack()

    def watch(self, undo: ExitStack, sites: CallSites) -> None:
        """Begin to look."""
        undo.push(self.until_first_mark)
        undo.push(self._until_complete)
        self._before = {name: read() for name, (read, _) in _SETTINGS.items()}
        for owner, name, toggle, words, counts in _CALLS:
            self._tell(owner, name, toggle, words, counts)
        for owner in (Optimizer, nn.Module):
            self._tell_resets(owner, sites)

    def first_mark(self) -> None:
        """Look at how gradients are reset, and no more at the rest."""
        self.until_first_mark.close()
        for name, (read, words) in _SETTINGS.items():
            if read() != self._before[name]:
                self.reasons.setdefault(name, words)

    def end(self) -> None:
        """Look no more."""
        self.complete = True
        if self.drops_instead is None:
            self._until_complete.close()

    def _tell(self, owner: Any, name: str, toggle: str, words: str, counts: Counts) -> None:
        function = getattr(owner, name)

        @functools.wraps(function)
        def told(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if counts(args, kwargs):
                self.reasons.setdefault(toggle, words)
            return result

        before = vars(owner)[name]
        self.until_first_mark.callback(setattr, owner, name, before)
        # `forward` of an autograd function is called without an instance
        setattr(owner, name, staticmethod(told) if isinstance(before, staticmethod) else told)

    def _tell_resets(self, owner: Any, sites: CallSites) -> None:
        resetting = owner.zero_grad

        @functools.wraps(resetting)
        def told(one: Any, set_to_none: bool = True) -> None:
            self.drops_gradients.add(bool(set_to_none))
            if not self.complete:  # later calls are timed
                sites.note(RESET, "zero_grad", sys._getframe(1), positions=("set_to_none",))
            resetting(one, set_to_none if self.drops_instead is None else self.drops_instead)

        put(self._until_complete, owner, "zero_grad", told)


_NODES = {
    "ScaledDotProductFlash": "flash",
    "ScaledDotProductEfficient": "efficient",
    "ScaledDotProductCudnn": "cudnn",
}
_CODES = {"flash": 1, "efficient": 2, "cudnn": 4}
_MATH, _UNSEEN = 8, 16
LOOKED_AT = 8
"""Backward passes whose graphs are searched: the search of a large graph takes milliseconds."""


class AttentionKernels:
    """Kernels seen before the first mark, and in the first iteration after it.

    Fused ones leave a node of their own in a loss's graph. No call is replaced for this: a script's own
    compiled code would be compiled again.
    """

    def __init__(self) -> None:
        self.before: set[str] = set()
        self.after: set[str] = set()
        self._looked = 0

    def watch(self, watched: Watched) -> None:
        """Begin to look."""
        watched.before_backward.append(self._look)
        self._watched = watched

    def first_mark(self) -> None:
        """Look once more, now at what the arm does."""
        self._looked = 0
        self.before, self.after = self.after, set()

    def code(self, compiled: bool) -> int:
        """The kernels as one number; where compiled code hides them, what they may be chosen from."""
        if compiled:
            return _UNSEEN * sum(enabled << place for place, enabled in enumerate(enabled_kernels()))
        return sum(_CODES[kind] for kind in self.after) or (_MATH if self.before else 0)

    def _look(self, losses: Any) -> None:
        if self._looked < LOOKED_AT:
            self._looked += 1
            names = (type(node).__name__ for node in _graph(losses))
            self.after |= {kind for name in names for start, kind in _NODES.items() if name.startswith(start)}

    def end(self) -> None:
        """Look no more."""
        self._watched.before_backward.remove(self._look)


def _graph(losses: Any) -> Iterator[Any]:
    """All nodes that a backward pass from `losses` would run."""
    waiting = [loss.grad_fn for loss in tensors_of(losses) if isinstance(loss, Tensor)]
    known = set[Any]()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in known:
            known.add(node)
            yield node
            waiting += [following for following, _ in node.next_functions]
