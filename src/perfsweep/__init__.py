"""The public API for your own code: marks in a training loop, and sweeps from Python.

::

    import perfsweep

    sweep = perfsweep.sweep(workload="digits", sweep="demo", rounds=8)
    sweep.recommended                                # levels to use, their speed, and the command
    sweep.effects                                    # a table
    sweep.report()                                   # path of report.html; a notebook shows a link
    perfsweep.open("runs/digits-demo").comparison    # results of a sweep so far

    for batch in perfsweep.steps(loader): ...        # in a script: each batch is an iteration; or
                                                     # perfsweep.mark() at the end of the loop's body

Outside a trial of ``workload=script`` marks do nothing. Importing this package imports the standard library
only, so it costs a training script nothing. The rest is imported when it is first used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from perfsweep.pipelines.api import Comparison, Sweep, Watch, compare, sweep
    from perfsweep.pipelines.api import open_sweep as open

__all__ = ["Comparison", "Sweep", "Watch", "compare", "mark", "open", "steps", "sweep"]

if (_archive := Path(__path__[0]).parent).is_file():  # jobs import a sweep's copy of the code
    from perfsweep.unpacked import unpacked

    __path__[:] = [str(unpacked(_archive) / __name__)]

_INTERFACE = "perfsweep.pipelines.api"
_OTHER_NAMES = {"open": "open_sweep"}

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


def __getattr__(name: str) -> Any:
    """Import the Python interface when one of its names is first used."""
    if name not in __all__:
        raise AttributeError(f"perfsweep has no {name}; it has: {', '.join(__all__)}")
    return getattr(import_module(_INTERFACE), _OTHER_NAMES.get(name, name))


def __dir__() -> list[str]:
    return __all__
