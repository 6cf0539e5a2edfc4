"""Kernels of scaled_dot_product_attention, as they are seen in the graphs of losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from perfsweep.workloads.script.batches import tensors_of
from perfsweep.workloads.script.changes.own_choices import enabled_kernels
from perfsweep.workloads.script.watched import Watched

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
