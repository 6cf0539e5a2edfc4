"""Energy: joules per unit, as the counters of the machine tell them over the timed region."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from perfsweep.pipelines.analysis.quantities.paired import per_trial, recorded
from perfsweep.pipelines.analysis.quantities.quantity import Measured, Quantity
from perfsweep.pipelines.store.idle import read_idle
from perfsweep.workloads.errors import RecordError

ENERGY_J = "energy_j"
"""What records call the joules of a region, see `perfsweep.pipelines.trial.machine.energy`."""


def energy_text(joules: float) -> str:
    """An energy with three digits, in the unit that reads best."""
    for unit, size in (("kJ", 1e3), ("J", 1.0), ("mJ", 1e-3), ("uJ", 1e-6)):
        if joules >= size:
            return f"{joules / size:.3g} {unit}"
    return f"{joules * 1e9:.3g} nJ"


def _remarks(measured: Measured) -> Iterator[str]:
    """Say whose counters these are, and what the machine draws at rest beside what the reference drew."""
    counted = [trial.record for trial in measured.trials if ENERGY_J in trial.record.quantities]
    if not counted:
        return
    facts = [record.environment.get("energy") or {} for record in counted]
    sources = ", ".join(dict.fromkeys(one["source"] for one in facts if "source" in one))
    counters = dict.fromkeys(name for one in facts for name in one.get("counters", ()))
    yield f"energy: from the counters of {sources or 'the machine'} ({', '.join(counters)}), idling included"
    reference = next(iter(measured.manifest.sweep.references.values()))
    drawn_w = [
        record.quantities[ENERGY_J] / (record.region_ns / 1e9)
        for record in counted
        if record.arm == reference
    ]
    beside = f"; the reference drew {median(drawn_w):.3g} W in its regions" if drawn_w else ""
    yield from (f"idle power: {line}{beside}" for line in _idle(measured))


def _idle(measured: Measured) -> Iterator[str]:
    """Sum up what packs measured at rest: the median of those that could, else why none could."""
    if measured.folder is None:
        return
    found, problems = [], []
    for pack in measured.manifest.packs:
        try:
            found.append(read_idle(measured.folder, pack.id))
        except RecordError as error:
            problems.append(str(error))
    watts = [sum(one.watts.values()) for one in found if one and one.watts]
    reasons = [*dict.fromkeys(one.withheld for one in found if one and one.withheld), *problems]
    if watts:
        packs = f", median of {len(watts)} packs" if len(watts) > 1 else ""
        yield f"{median(watts):.3g} W with no trial running{packs}"
    elif reasons:
        yield f"not known: {reasons[0]}"


ENERGY = Quantity(
    key="energy",
    heading="energy",
    arm_heading="energy per {unit}",
    doc="joules of the devices that the counters cover, GPUs or processor packages, against the base",
    source=per_trial("energy", recorded(ENERGY_J)),
    text=energy_text,
    remarks=_remarks,
)
