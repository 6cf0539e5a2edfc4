"""Energy of a timed region, from counters read at both of its ends: never inside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfsweep.pipelines.trial.machine.environment import HostUsage, foreign_cores
from perfsweep.pipelines.units import duration

ENERGY_J = "energy_j"
"""The quantity in records: joules of all counters over the region; each of several has one of its own."""

WORST_SHARE = 0.02
"""Most of a region that a counter may miss: it lags by up to the time between two changes at either end."""
MOST_W = 800.0
"""More than any package draws: for as long as a counter's range lasts at this power it begins again once at
most."""
SHARED_CORES = 0.25
"""Cores' worth of other work during a trial that a counter of the whole machine may cover."""


@dataclass(frozen=True)
class Spent:
    """What one rank's counters say of its regions; `reason` in its place where they say nothing."""

    joules: dict[str, float] = field(default_factory=dict)
    regions: int = 0
    seconds: float = 0.0
    step_s: float = 0.0
    source: str = ""
    reason: str = ""


def record_fields(ranks: Sequence[Spent], job: bool) -> dict[str, Any]:
    """Fields of the record from what all ranks spent: joules, or why there are none."""
    reasons = [one.reason for one in ranks if one.reason] or list(filter(None, map(too_short, ranks)))
    if reasons:
        return without(_with_remedy(reasons[0], ranks, job))
    parts: dict[str, float] = {}
    for name, joules in ((name, joules) for one in ranks for name, joules in one.joules.items()):
        parts[name] = parts.get(name, 0.0) + joules
    total = sum(parts.values())
    if not total > 0:
        return without("the counters did not move in the whole region")
    each = {f"{ENERGY_J} {name}": joules for name, joules in parts.items()} if len(parts) > 1 else {}
    source = next(one.source for one in ranks if one.source)
    return {
        "quantities": {ENERGY_J: total, **each},
        "withheld": {},
        "energy": {"source": source, "counters": list(parts)},
    }


def without(reason: str) -> dict[str, Any]:
    """Fields of the record where there is no energy."""
    return {"quantities": {}, "withheld": {ENERGY_J: reason}, "energy": {}}


def shared(quantities: Mapping[str, float], reason: str) -> dict[str, Any]:
    """Fields of the record where others drew the energy too: the other `quantities` stay."""
    rest = {name: value for name, value in quantities.items() if not name.startswith(ENERGY_J)}
    return {**without(reason), "quantities": rest}


def too_short(one: Spent) -> str:
    """Say that regions were too short for counters that change so seldom; empty where they were not."""
    if not one.regions or one.regions * one.step_s <= WORST_SHARE * one.seconds:
        return ""
    return (
        f"{one.source}'s counters change every {duration(one.step_s * 1e9)}, and a turn took"
        f" {duration(one.seconds / one.regions * 1e9)}; one of {duration(least_s(one) * 1e9)} would do"
    )


def least_s(one: Spent) -> float:
    """Seconds that a region must have so that what a counter misses at its ends is a small share."""
    return one.step_s / WORST_SHARE


def _with_remedy(reason: str, ranks: Sequence[Spent], job: bool) -> str:
    short = next((one for one in ranks if too_short(one)), None)
    if short is None or any(one.reason for one in ranks):
        return reason
    # Twice as long: an arm may be faster than the one that the region's iterations come from, and a region
    # may end with a short turn.
    wanted = _two_digits(2 * least_s(short))
    region = ", where a job lasts as long" if job else f" measure.region_s={wanted}"
    return f"{reason}: measure.turn_s={wanted}{region}"


def _two_digits(value: float) -> str:
    """Round up to two digits."""
    size = math.floor(math.log10(value)) - 1
    return f"{math.ceil(value / 10.0**size - 1e-9) * 10.0**size:.{max(0, -size)}f}"


def shared_by(
    before: HostUsage, after: HostUsage, counters: Iterable[str], source: str, beside_cores: float
) -> str:
    """Say who else drew from the counters of a trial; empty where no other trial is known to have.

    Parameters
    ----------
    counters : names of the counters that were read; of GPUs their UUIDs
    beside_cores : cores' worth of time that the trial's other processes may use
    """
    if source == "NVML":
        names = set(counters)
        foreign = [gpu for gpu in (*before.gpus, *after.gpus) if gpu.uuid in names and gpu.foreign]
        return f"{foreign[0].uuid} had other processes, which drew from the same counter" if foreign else ""
    others = (foreign_cores(before, after) or 0.0) - beside_cores
    if others <= SHARED_CORES:
        return ""
    return f"other processes used {others:.1f} cores, which drew from the same counter of the package"
