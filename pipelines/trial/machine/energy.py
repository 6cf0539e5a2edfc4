"""Energy of a timed region, from counters read at both of its ends: never inside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from perfsweep.pipelines.trial.machine.energy_counters import (
    Counters,
    Unreadable,
    gpu_counters,
    grown_j,
    processor_counters,
)
from perfsweep.pipelines.trial.machine.environment import HostUsage, foreign_cores
from perfsweep.pipelines.trial.timing.clock import HostClock
from perfsweep.pipelines.units import duration

ENERGY_J = "energy_j"
"""The quantity in records: joules of all counters over the region; each of several has one of its own."""

WORST_SHARE = 0.02
"""Most of a region that a counter may miss: it lags by up to the time between two changes at either end."""
MOST_W = 800.0
"""More than any package draws: for as long as a counter's range lasts at this power it begins anew once at
most."""
SHARED_CORES = 0.25
"""Cores' worth of other work beside a trial that a counter of the whole machine may cover."""


@dataclass(frozen=True)
class Spent:
    """What one rank's counters say of its regions; `reason` in its place where they say nothing."""

    joules: dict[str, float] = field(default_factory=dict)
    regions: int = 0
    seconds: float = 0.0
    step_s: float = 0.0
    source: str = ""
    reason: str = ""


class Meter:
    """Reads the counters of the devices that do a trial's work.

    Parameters
    ----------
    counts : whether this rank reads: of those that share a machine's counters the first one does
    step_s : time between two changes of the counters, where somebody has looked; None: what is known of them
    now : seconds of a clock that never jumps
    """

    def __init__(
        self,
        clock: HostClock,
        counts: bool = True,
        step_s: float | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._open = ExitStack()
        self._counters: Counters | None = None
        self._step_s, self._now = step_s, now
        self._reason = ""
        if counts:
            self._find(clock)
        self.forget()

    def _find(self, clock: HostClock) -> None:
        used = clock.used_devices()
        try:
            self._counters = self._open.enter_context(gpu_counters(used) if used else processor_counters())
        except Unreadable as error:
            self._reason = str(error)

    def close(self) -> None:
        """Let go of NVML."""
        self._open.close()

    def forget(self) -> None:
        """Begin anew: the regions so far do not count, and neither does what went wrong in them."""
        if self._counters is not None:
            self._reason = ""
        self._before: tuple[float, ...] = ()
        self._joules: dict[str, float] = {}
        self._regions, self._seconds, self._began = 0, 0.0, 0.0

    def begin(self) -> None:
        """A region begins now; the device has done all that it was given before."""
        self._read(self._keep_before)

    def end(self) -> None:
        """The region has ended."""
        self._read(self._add)

    def _read(self, take: Callable[[Counters, tuple[float, ...]], None]) -> None:
        if self._counters is None or self._reason:
            return
        try:
            take(self._counters, self._counters.read_j())
        except Unreadable as error:
            self._reason = str(error)

    def _keep_before(self, counters: Counters, read: tuple[float, ...]) -> None:
        self._before, self._began = read, self._now()

    def _add(self, counters: Counters, read: tuple[float, ...]) -> None:
        seconds = self._now() - self._began
        for counter, before, after in zip(counters.each, self._before, read, strict=True):
            if counter.range_j is not None and seconds > counter.range_j / MOST_W:
                self._reason = (
                    f"the counter of {counter.name} may have begun anew more than once in {seconds:.0f} s; a"
                    f" region under {counter.range_j / MOST_W:.0f} s would do"
                )
                return
            joules = grown_j(counter, before, after)
            self._joules[counter.name] = self._joules.get(counter.name, 0.0) + joules
        self._regions += 1
        self._seconds += seconds

    def spent(self) -> Spent:
        """What the counters say of the regions so far."""
        if self._counters is None or self._reason:
            return Spent(reason=self._reason)
        return Spent(
            joules=dict(self._joules),
            regions=self._regions,
            seconds=self._seconds,
            step_s=self._step_s or self._counters.step_s,
            source=self._counters.source,
        )


def record_fields(ranks: Sequence[Spent], iterations: int, job: bool) -> dict[str, Any]:
    """Fields of the record from what all ranks spent: joules, or why there are none."""
    reasons = [one.reason for one in ranks if one.reason] or list(filter(None, map(too_short, ranks)))
    if reasons:
        return without(_with_remedy(reasons[0], ranks, iterations, job))
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
        f"{one.source}'s counters change every {duration(one.step_s * 1e9)}, and a region took"
        f" {duration(one.seconds / one.regions * 1e9)}; one of {duration(least_s(one) * 1e9)} would do"
    )


def least_s(one: Spent) -> float:
    """Seconds that a region must have so that what a counter misses at its ends is a small share."""
    return one.step_s / WORST_SHARE


def _with_remedy(reason: str, ranks: Sequence[Spent], iterations: int, job: bool) -> str:
    short = next((one for one in ranks if too_short(one)), None)
    if job or short is None or any(one.reason for one in ranks):
        return reason
    wanted = iterations * least_s(short) / (short.seconds / short.regions)
    return f"{reason}: measure.iterations={_two_digits(wanted)}"


def _two_digits(value: float) -> int:
    """Round up to two digits."""
    size = 10 ** max(0, len(str(int(value))) - 2)
    return (int(value) // size + 1) * size


def shared_by(
    before: HostUsage, after: HostUsage, counters: Iterable[str], source: str, beside_cores: float
) -> str:
    """Say who else drew from the counters of a trial; empty where nobody is known to have.

    Parameters
    ----------
    counters : names of those that were read; of GPUs their UUIDs
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
