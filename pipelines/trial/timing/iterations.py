"""Iterations of a workload and whole jobs: how they are run, how long they take, and what their times show.

A workload knows its cadence; a loop that is only seen from outside shows it by the times of its iterations,
heavy ones such as rollouts among light ones. Where they take longer and longer, or memory grows, something is
kept from one to the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from perfsweep.pipelines.trial import ranks
from perfsweep.pipelines.trial.machine.usage import Usage
from perfsweep.pipelines.trial.timing.clock import HostClock
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

    The first `skipped` iterations warm up; `total_ns` is the time of the others so far.
    """

    def __init__(self, clock: HostClock, skipped: int) -> None:
        self._clock, self._skipped = clock, skipped
        self._done, self.total_ns = 0, 0.0

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
            self.total_ns += max(wall_ns - delay_ns, min(wall_ns, busy_ns))

    @property
    def mean_ns(self) -> int | None:
        """Mean of the iterations so far, whole ns; None without one."""
        counted = self._done - self._skipped
        return max(1, round(self.total_ns / counted)) if counted > 0 else None


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
    while not ranks.agree(suffices(times), world):
        duration, ended = Duration(clock, 0), False
        try:
            with duration:
                workload.step(NullClock())
        except Exception:  # noqa: BLE001 - the loop's own end, or its mistake, which timing trials tell of
            ended = True
        if ranks.any_of(ended, world):
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


HEAVY = 3.0
"""Times the median from which an iteration is heavy."""
WHOLE = 3
"""Periods that must be seen: two of equal length may be chance."""
EXPLAINED = 0.3
"""Least share of the scatter that a period explains of iterations that it was not found by."""
NEARLY = 0.1
"""A shorter period is taken whose share is less by so much: multiples of a period explain as much."""

APART = 1.5
"""Times the slowest of the others that the least of the heavy ones takes."""

SEEN = 240
"""Iterations that are looked at, where they last no longer than `SEEN_S`."""
SEEN_S = 1.0
LONGEST_S = 8.0
"""Seconds that they may last where heavy ones were seen, and not yet often enough."""

IRREGULAR = 0
"""Instead of a period: there are heavy iterations, and they come at no regular distance."""

BLOCKS = 10
"""Parts of a series whose middles must rise, so that neighbours may resemble one another."""
RISES = 8
"""Of the nine steps between them, the number that must go up: by chance one series in seventy."""
SLOWER = 0.1
"""Share by which the last third must be slower than the first."""
MORE_BYTES = 4 << 20
"""Bytes that must have come in all: an allocator asks for memory by the megabyte."""


def period_of(times_ns: ArrayLike) -> int | None:
    """Iterations after which times repeat; `IRREGULAR`, or None where no iteration is heavy and none repeats.

    Of each candidate, what the iterations of other periods at the same place predict is held against the
    median of all: places that share nothing predict worse than that. On logarithms, so that an outlier is not
    all of the scatter.

    Parameters
    ----------
    times_ns : [N] positive times, in order
    """
    times = np.asarray(times_ns, float)
    logs = np.log(np.maximum(times, 1.0))
    longest = len(logs) // WHOLE
    shares = {period: _explained(logs, period) for period in range(2, longest + 1)}
    best = max(shares.values(), default=0.0)
    if best >= EXPLAINED:
        return next(period for period, share in shares.items() if share >= best - NEARLY)
    return IRREGULAR if len(times) and _stands_apart(times) else None


def _explained(logs: np.ndarray, period: int) -> float:
    """Share of the scatter that the same places of other periods explain."""
    whole = len(logs) // period
    rows = logs[: whole * period].reshape(whole, period)
    scatter = np.abs(rows - np.median(rows)).sum()
    others = np.stack([np.median(np.delete(rows, row, axis=0), axis=0) for row in range(whole)])
    return float(1 - np.abs(rows - others).sum() / scatter) if scatter > 0 else 0.0


def _stands_apart(times: np.ndarray) -> bool:
    """Whether heavy iterations are a kind of their own, and no tail of the scatter of a crowded machine."""
    bound = HEAVY * np.median(times)
    above = times[times > bound]
    return len(above) >= WHOLE and bool(above.min() > APART * times[times <= bound].max())


def heavy(times_ns: ArrayLike) -> tuple[float, float]:
    """How many iterations are heavy, and the share of all time by which they exceed the median."""
    times = np.asarray(times_ns, float)
    median = np.median(times)
    those = times[times > HEAVY * median]
    return float(len(those)), float((those - median).sum() / times.sum())


def suffices(times_ns: list[float]) -> bool:
    """Whether enough iterations were seen: so many, or for so long, and heavy ones often enough."""
    seconds = sum(times_ns) / 1e9
    if len(times_ns) < SEEN and seconds < SEEN_S:
        return False
    count = heavy(times_ns)[0]
    return count == 0 or count > WHOLE or len(times_ns) >= 2 * SEEN or seconds >= LONGEST_S


def time_growth(times_ns: Sequence[float]) -> float:
    """Share by which iterations at the end take longer than at the beginning; 0 where they do not rise."""
    times = np.asarray(times_ns, float)
    if not _rises(times):
        return 0.0
    third = len(times) // 3
    growth = float(np.median(times[-third:]) / np.median(times[:third]) - 1)
    return growth if growth > SLOWER else 0.0


def memory_growth(taken: Sequence[float]) -> float:
    """Bytes that each iteration adds; 0 where memory does not rise all the time."""
    half = np.asarray(taken[len(taken) // 4 :], float)  # what comes first has its buffers still to make
    if not _rises(half) or half[-1] - half[0] < MORE_BYTES:
        return 0.0
    return float((half[-1] - half[0]) / (len(half) - 1))


def _rises(values: np.ndarray) -> bool:
    """Whether the middles of equal blocks go up nearly always."""
    if len(values) < 4 * BLOCKS:
        return False
    block = len(values) // BLOCKS
    middles = np.median(values[: block * BLOCKS].reshape(BLOCKS, block), axis=1)
    return int((np.diff(middles) > 0).sum()) >= RISES
