"""Explicit marks: where an iteration of a script ends, for those who want it in their loop.

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
"""Imported by a trial alone: what imports the door imports the standard library only."""


def mark() -> None:
    """End an iteration here."""
    listener = sys.modules.get(_LISTENER)
    if listener is not None and listener.arrived is not None:
        listener.arrived()


def steps(batches: Iterable[T]) -> Iterator[T]:
    """Yield the batches, each of which is an iteration."""
    for batch in batches:
        yield batch
        mark()
