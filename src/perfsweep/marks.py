"""Explicit marks: where an iteration of a script ends, if you want to say so in your loop.

::

    for batch in perfsweep.steps(loader):  # or perfsweep.mark() at the end of the loop's body
        ...

Outside a trial of ``workload=script`` they do nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_LISTENER = "perfsweep.workloads.script.explicit_marks"
"""Only trials import it, because importing `perfsweep` imports the standard library only."""


def mark() -> None:
    """End an iteration here."""
    listener = sys.modules.get(_LISTENER)
    if listener is not None and listener.arrived is not None:
        listener.arrived()


def steps(batches: Iterable[T]) -> Iterator[T]:
    """Yield the batches; each batch is one iteration."""
    for batch in batches:
        yield batch
        mark()
