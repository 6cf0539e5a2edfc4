"""The steps of a timing trial as its series has them: times, and those of the phases that it marks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from perfsweep.pipelines.analysis.quantities.quantity import Withheld
from perfsweep.pipelines.store.iteration_times import iteration_times, phase_times
from perfsweep.pipelines.store.records import read_iterations
from perfsweep.workloads.errors import RecordError

HOST, DEVICE = "host_", "device_"


@dataclass(frozen=True)
class Steps:
    """Times [N] in ns of the steps of a region, by the device where it has marks, and of phases in them."""

    times_ns: np.ndarray
    phases: Mapping[str, np.ndarray]


def steps_of(folder: Path) -> Steps | Withheld:
    """Read the steps of a trial.

    Returns a reason where the series cannot be read, or the device's time of some steps is missing.
    """
    file = folder / "iterations.npz"
    return _read(folder, file.stat().st_mtime_ns if file.exists() else 0)


@lru_cache(maxsize=4096)  # several quantities read the same files
def _read(folder: Path, written: int) -> Steps | Withheld:
    try:
        arrays = read_iterations(folder)
    except RecordError as error:
        return Withheld(str(error))
    if (arrays.get(f"{DEVICE}ns", np.zeros(1)) < 0).any():
        return Withheld("the device's marks of some steps could not be had, so single steps are not known")
    outermost = (name.removeprefix(HOST) for name in arrays if name.startswith(HOST) and "/" not in name)
    return Steps(
        iteration_times(arrays).astype(float),
        {name: phase_times(arrays, name)[1].astype(float) for name in outermost},
    )
