"""Iterations of a workload, whole jobs, and the numbers that it has after them."""

from __future__ import annotations

import math
from typing import Any

from perfsweep.workloads.api import Workload
from perfsweep.workloads.errors import ContractError

UNITS = "units"
"""The number that every workload has: units so far, of a job those of the last one."""


def numbers_of(workload: Workload) -> dict[str, float]:
    """Figures of the results so far."""
    numbers = {name: float(value) for name, value in workload.numbers().items()}
    return {**numbers, UNITS: float(workload.progress())}


def iterate(workload: Workload, clock: Any, iterations: int) -> None:
    """A number of iterations, or one whole job."""
    if workload.shape == "job":
        while not workload.done():
            workload.step(clock)
    else:
        for _ in range(iterations):
            workload.step(clock)


def whole_cadences(workload: Workload, iterations: int) -> int:
    """The number of iterations, rounded up to whole cadences."""
    return math.ceil(iterations / workload.cadence) * workload.cadence


def endless_step(workload: Workload, clock: Any) -> None:
    """One iteration of steps-shaped work, which must never run out."""
    try:
        workload.step(clock)
    except StopIteration as error:
        raise ContractError(
            f"{type(workload).__name__} ran out of iterations while it was measured; steps-shaped work must"
            " go on for ever, or be declared shape='job'"
        ) from error
