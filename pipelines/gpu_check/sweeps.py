"""Small sweeps, measured as any other: through the Python interface, in a folder of the check's own."""

from __future__ import annotations

from collections.abc import Sequence

from perfsweep.pipelines import api
from perfsweep.pipelines.api import Sweep
from perfsweep.pipelines.gpu_check.answer import Here


def measured(here: Here, name: str, overrides: Sequence[str]) -> Sweep:
    """Measure a sweep on this machine and open it.

    Raises
    ------
    PerfsweepError
        It cannot be planned, or a pack broke off.
    """
    own = (f"name={name}", f"runs={here.folder}", "cluster=local", "tracking=disabled")
    return api.sweep(*overrides, *own)
