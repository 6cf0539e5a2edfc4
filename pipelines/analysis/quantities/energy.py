"""Energy: joules per unit, as the counters of the machine tell them over the timed region."""

from __future__ import annotations

from pipelines.analysis.quantities.paired import per_trial, recorded
from pipelines.analysis.quantities.quantity import Quantity


def energy_text(joules: float) -> str:
    """An energy with three digits, in the unit that reads best."""
    for unit, size in (("kJ", 1e3), ("J", 1.0), ("mJ", 1e-3), ("uJ", 1e-6)):
        if joules >= size:
            return f"{joules / size:.3g} {unit}"
    return f"{joules * 1e9:.3g} nJ"


ENERGY = Quantity(
    key="energy",
    heading="energy",
    arm_heading="energy per {unit}",
    doc="joules of the devices that the counters cover, GPUs or processor packages, against the base",
    source=per_trial("energy", recorded("energy_j")),
    text=energy_text,
)
