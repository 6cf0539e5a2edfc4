"""Quantities of a timed region beside its time: energy, units of a job, share of a device's peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfsweep.pipelines.trial.machine import energy
from perfsweep.pipelines.trial.machine.energy import Spent
from perfsweep.pipelines.trial.timing.ranks import Region
from perfsweep.workloads.api import Device, Work, Workload
from perfsweep.workloads.peaks import peak


def record_fields(
    workload: Workload,
    ranks: Sequence[Region],
    spent: Sequence[Spent],
    units: float,
    iterations: int,
    jobs: int,
) -> dict[str, Any]:
    """Fields of the record: energy, or why there is none, devices in use, and the units of a whole job."""
    found = energy.record_fields(spent, iterations, workload.shape == "job")
    more = {"devices": float(sum(rank.devices for rank in ranks))}
    if (whole := job_units(workload, units, iterations, jobs)) is not None:
        more["job_units"] = whole
    return {**found, "quantities": {**found["quantities"], **more}}


def job_units(workload: Workload, units: float, iterations: int, jobs: int) -> float | None:
    """Count the units of a whole job, or of a whole training; None where its configuration has no length.

    Of a job that does a sample of its work they are those of all of it.
    """
    if workload.shape == "job":
        return units / jobs / (workload.counters().get("sampled_share") or 1.0)
    return None if workload.length is None else units / iterations * workload.length


def share_of_peak(work: Work, units: float, region_ns: int, device: Device, ranks: int = 1) -> float | None:
    """Work of a timed region by what its devices can do in that time; None if formula or peak is unknown.

    Parameters
    ----------
    units : done in the region, by all ranks together
    ranks : processes that did it; those that share a device count once
    """
    known = peak(device.name) if device.type == "cuda" else None
    rate = known.flops_per_s(work.products) if known is not None else None
    if work.flops is None or rate is None:
        return None
    return work.flops * units / (region_ns / 1e9) / (rate * max(1, min(ranks, device.count)))
