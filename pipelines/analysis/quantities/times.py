"""Wall time and CPU time of an arm, as columns that a sweep may ask for."""

from __future__ import annotations

from perfsweep.pipelines.analysis.quantities.quantity import Quantity, Withheld, per_trial
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import Sweep
from perfsweep.pipelines.units import duration


def _cpu_ns(trial: StoredTrial, sweep: Sweep) -> float | Withheld:
    return trial.record.cpu_ns_per_unit or Withheld("the trials took no CPU time")


WALL = Quantity(
    key="wall",
    heading="wall time",
    arm_heading="wall time per {unit}",
    doc="the same in wall time, with what others had of the core",
    source=per_trial("wall time", lambda trial, sweep: trial.record.wall_ns_per_unit),
    text=duration,
)
CPU = Quantity(
    key="cpu",
    heading="CPU time",
    arm_heading="CPU time per {unit}",
    doc="the same in processor time of the process, all of its threads together",
    source=per_trial("CPU time", _cpu_ns),
    text=duration,
)
