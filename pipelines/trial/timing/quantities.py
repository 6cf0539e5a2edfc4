"""Quantities of a timed region in addition to its time: energy, units of a job, share of a device's peak."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from perfsweep.pipelines.trial.machine import energy
from perfsweep.pipelines.trial.machine.energy import (
    MOST_W,
    Counters,
    Spent,
    Unreadable,
    gpu_counters,
    grown_j,
    processor_counters,
)
from perfsweep.pipelines.trial.timing.clock import HostClock
from perfsweep.pipelines.trial.timing.iterations import heavy
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
    """Fields of the record: energy, or why there is none, devices, heavy iterations, units of a whole job."""
    found = energy.record_fields(spent, workload.shape == "job")
    more = {"devices": float(sum(rank.devices for rank in ranks))}
    if not workload.cadence_is_known:
        more["heavy_iterations"], more["heavy_share"] = heavy(ranks[0].wall_ns)
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
    ranks : processes that did it; the ones that share a device count once
    """
    known = peak(device.name) if device.type == "cuda" else None
    rate = known.flops_per_s(work.products) if known is not None else None
    if work.flops is None or rate is None:
        return None
    return work.flops * units / (region_ns / 1e9) / (rate * max(1, min(ranks, device.count)))


class Meter:
    """Reads the counters of the devices that do a trial's work.

    Parameters
    ----------
    counts : whether this rank reads: of the ranks that share a machine's counters the first one does
    step_s : time between two changes of the counters, where a process has looked; None: what is known of them
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
        """Begin again: the regions so far do not count, and neither does what went wrong in them."""
        if self._counters is not None:
            self._reason = ""
        self._before: tuple[float, ...] = ()
        self._joules: dict[str, float] = {}
        self._regions, self._seconds, self._began = 0, 0.0, 0.0

    def begin(self) -> None:
        """A region begins now; the device has done all that it was given before."""
        if self._counters is not None and not self._reason:
            try:
                self._before, self._began = self._counters.read_j(), self._now()
            except Unreadable as error:
                self._reason = str(error)

    def end(self) -> None:
        """The region has ended."""
        if self._counters is not None and not self._reason:
            try:
                self._add(self._counters)
            except Unreadable as error:
                self._reason = str(error)

    def _add(self, counters: Counters) -> None:
        read, seconds = counters.read_j(), self._now() - self._began
        for counter, before, after in zip(counters.each, self._before, read, strict=True):
            if counter.range_j is not None and seconds > counter.range_j / MOST_W:
                raise Unreadable(
                    f"the counter of {counter.name} may have begun again more than once in {seconds:.0f} s; a"
                    f" region under {counter.range_j / MOST_W:.0f} s would do"
                )
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
