"""Updates by hand, as ``p.data.add_(p.grad, alpha=-lr)``: parameters change between two backward passes.

An iteration then ends with the last backward pass before an update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from perfsweep.workloads.script.watched import Watched


class ByHand:
    """Watches backward passes until two updates were seen without an optimiser's step, then marks.

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
