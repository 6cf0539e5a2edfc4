"""Iterations of a workload and whole jobs; how long they take, and their numbers."""

from __future__ import annotations

import math
from typing import Any

import torch

from perfsweep.pipelines.trial import process_group
from perfsweep.pipelines.trial.machine.usage import Usage
from perfsweep.pipelines.trial.timing.clock import HostClock
from perfsweep.pipelines.trial.timing.period import memory_growth, period_of, suffices, time_growth
from perfsweep.workloads.api import NullClock, Workload
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


class Duration:
    """How long an iteration takes while nothing keeps it from a core: what others do does not count.

    The first `skipped` iterations warm up.
    """

    def __init__(self, clock: HostClock, skipped: int) -> None:
        self._clock, self._skipped = clock, skipped
        self._done = self._total_ns = 0

    def __enter__(self) -> None:
        self._clock.synchronize()
        self._usage, self._cpu_ns = self._clock.usage(), self._clock.cpu_ns()
        self._begun = self._clock.now_ns()

    def __exit__(self, *exception: object) -> None:
        self._clock.synchronize()
        wall_ns = self._clock.now_ns() - self._begun
        delay_ns = Usage.between(self._usage, self._clock.usage()).run_delay_ns or 0
        self._done += 1
        if self._done > self._skipped:
            # Several threads may wait for a core at once, longer together than the iteration lasts.
            busy_ns = (self._clock.cpu_ns() - self._cpu_ns) / max(1, torch.get_num_threads())
            self._total_ns += max(wall_ns - delay_ns, min(wall_ns, busy_ns))

    @property
    def mean_ns(self) -> int | None:
        """Mean of the iterations so far, whole ns; None without one."""
        counted = self._done - self._skipped
        return max(1, round(self._total_ns / counted)) if counted > 0 else None

    @property
    def total_ns(self) -> float:
        """Time of the iterations so far."""
        return self._total_ns


READ_EVERY = 4
"""Iterations between two looks at the memory, which take milliseconds."""


def beat_of(workload: Workload, clock: HostClock, world: int = 1) -> dict[str, Any]:
    """What the times of a loop show, as fields of a record: its period, see `period_of`, and if it grows.

    Where it has a period, `iteration_ns` is the mean over whole periods. What ends the loop ends the search
    too: a script may have fewer iterations than are looked at here. The times of the first rank decide,
    because the other ranks wait for it within iterations.
    """
    times: list[float] = []
    taken: list[float] = []
    while not process_group.agree(suffices(times), world):
        duration, ended = Duration(clock, 0), False
        try:
            with duration:
                workload.step(NullClock())
        except Exception:  # noqa: BLE001 - the loop's own end, or its mistake, which timing trials tell of
            ended = True
        if process_group.any_of(ended, world):
            break
        times.append(duration.total_ns)
        if len(times) % READ_EVERY == 0:
            taken.append(clock.taken_bytes())
    grown = {"time_growth": time_growth(times), "memory_growth": memory_growth(taken) / READ_EVERY}
    period = period_of(times)
    if period is None:
        return {"cadence": None, "quantities": grown}
    whole = len(times) // max(1, period) * max(1, period)
    mean_ns = max(1, round(sum(times[:whole]) / whole))
    return {"cadence": period, "iteration_ns": mean_ns, "quantities": grown}


def over_a_cadence(workload: Workload, clock: HostClock, most_s: float) -> int | None:
    """Mean ns of the iterations of a whole cadence: what comes every so often has its share.

    None where they last longer than `most_s` together, which then holds no whole cadence.
    """
    duration = Duration(clock, 0)
    for _ in range(workload.cadence):
        with duration:
            workload.step(NullClock())
        if duration.total_ns > most_s * 1e9:
            return None
    return duration.mean_ns
