"""Model FLOPs utilisation (Chowdhery et al. 2022): the share of a device's peak that formula work takes."""

from __future__ import annotations

from perfsweep.workloads.api import Device, Work
from perfsweep.workloads.peaks import peak


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
