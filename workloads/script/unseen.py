"""Training that no step of an optimiser in this process shows: updates by hand, and processes of its own."""

from __future__ import annotations

import functools
import multiprocessing.process
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import _utils

from perfsweep.workloads.script.replaced import put
from perfsweep.workloads.script.watched import Watched


class ByHand:
    """Watches backward passes until two updates were seen without an optimiser's step, then marks.

    Updates by hand, as ``p.data.add_(p.grad, alpha=-lr)``, change parameters between two backward passes. An
    iteration then ends with the last backward pass before an update.

    Parameters
    ----------
    found : told once, when it is known that the script updates by hand
    """

    def __init__(self, watched: Watched, mark: Callable[[], None], found: Callable[[], None]) -> None:
        self._watched, self._mark, self._found = watched, mark, found
        self._before: dict[int, tuple[Tensor, float]] = {}
        self._passes = self._every = 0
        self._changed_at: list[int] = []
        watched.before_backward.append(self._look)
        watched.after_backward.append(self._end)

    def _look(self, loss: Any) -> None:
        self._passes += 1
        if self._every or not isinstance(loss, Tensor):
            return
        if self._watched.optimizers or not self._watched.looking:
            self._watched.before_backward.remove(self._look)
            self._watched.after_backward.remove(self._end)
            return
        now = {id(leaf): (leaf, float(leaf.detach().double().sum())) for leaf in leaves_of(loss)}
        common = now.keys() & self._before.keys()
        changed = not common or any(now[one][1] != self._before[one][1] for one in common)
        if self._before and now and changed:
            self._changed_at.append(self._passes)
            self._watched.leaves = [leaf for leaf, _ in now.values()]
        self._before = now
        if len(self._changed_at) > 1:
            self._every = self._changed_at[1] - self._changed_at[0]
            self._before = {}
            self._found()

    def _end(self) -> None:
        if self._every and (self._passes - self._changed_at[0] + 1) % self._every == 0:
            self._mark()


def leaves_of(loss: Tensor) -> Iterator[Tensor]:
    """All tensors whose gradients a backward pass from `loss` adds to."""
    nodes = [loss.grad_fn]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        if node is None:
            continue
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor):
            yield leaf
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                nodes.append(following)


LOOK_EVERY_S = 0.5
"""How often it is looked at whether one of them has made an update."""


class OwnProcesses:
    """Knows which processes a script has started, and whether one of them has made an update.

    Parameters
    ----------
    folder : of the trial's own, in which they leave a note

    Attributes
    ----------
    started : lines that started them
    """

    def __init__(self, folder: Path, line: Callable[[Any], str]) -> None:
        self._note, self._line = folder / "updated", line
        self._alive: list[Any] = []
        self.started: list[str] = []

    def watch(self, undo: ExitStack) -> None:
        """Have each report its first update, and end them all with `undo`."""
        starting = multiprocessing.process.BaseProcess.start

        @functools.wraps(starting)
        def start(process: Any) -> None:
            if process._target is not None and process._target is not _utils.worker._worker_loop:
                self.started.append(self._line(sys._getframe(1)))
                process._target = Reporting(process._target, str(self._note))
                self._alive.append(process)
                if signal.getsignal(signal.SIGALRM) not in (signal.SIG_DFL, signal.SIG_IGN, None):
                    signal.setitimer(signal.ITIMER_REAL, LOOK_EVERY_S, LOOK_EVERY_S)
            starting(process)

        undo.callback(self._end)
        put(undo, multiprocessing.process.BaseProcess, "start", start)

    @property
    def have_updated(self) -> bool:
        """Whether one of them has made an update."""
        return bool(self.started) and self._note.exists()

    def told(self, script: str) -> str:
        """Say where the script trains, and what can be done about it."""
        number = len(self.started)
        return (
            f"{script} trains in {number} process{'es' * (number > 1)} that it starts itself"
            f" ({self.started[0]}), and a trial sees one process. If each is a rank that reads RANK and"
            f" WORLD_SIZE, leave the start to workload.ranks={number}; else measure whole runs of it with"
            " workload=command"
        )

    def _end(self) -> None:
        for process in self._alive:
            if process._popen is not None and process.is_alive():
                process.terminate()


class Reporting:
    """What a process runs, with a note left by its first update; goes to it by pickle."""

    def __init__(self, target: Callable[..., Any], note: str) -> None:
        self._target, self._note = target, note

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)  # a fork inherits no timer, but its handler
        note = Path(self._note)

        def leave(*about: Any) -> None:
            handle.remove()
            note.touch()

        handle = register_optimizer_step_post_hook(leave)
        return self._target(*args, **kwargs)
