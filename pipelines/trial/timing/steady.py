"""When a process has become steady, and whether a timed region was.

Works on log times, so that one compilation 200 times as long as an iteration does not drown everything else.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.ma
from numpy.typing import ArrayLike

from perfsweep.pipelines.store.trial_schema import TrialSpec
from perfsweep.pipelines.trial import ranks
from perfsweep.pipelines.trial.compiles import CompileCounting
from perfsweep.pipelines.trial.machine import gpus
from perfsweep.pipelines.trial.machine.gpus import Gpu
from perfsweep.pipelines.trial.timing.clock import HostClock
from perfsweep.pipelines.trial.timing.iterations import endless_step
from perfsweep.pipelines.trial.timing.recorder import Recorder
from perfsweep.workloads.api import NullClock, Workload

BATCH = 5
SHORTEST_WARMUP = 5
WITHOUT_COMPILING = 3
"""Iterations that compile nothing, one after another, that end the search for compilations."""
LARGEST_CUT = 0.25
"""Share of a region that may look like warm-up before the region is doubted."""
STANDARD_ERRORS = 3.0
SHORTEST_REGION = 20
"""Iterations, or cadences, below which no region is doubted: of three batches MSER nearly always cuts one."""
BLOCKS = 10
"""Blocks per half of a region, from which the standard error of its median is taken."""


def mser5(times_ns: ArrayLike) -> int:
    """Iterations at a series' start that differ from the rest, a multiple of 5 and at most half of them.

    MSER-5 (White 1997; White, Cobb and Spratt 2000) on the logarithms of the times [N]: of all cuts, the one
    with the smallest squared standard error of the mean of what remains.

    Raises
    ------
    ValueError
        A time is not positive and finite.
    """
    means = _batch_means(_log_times(times_ns), BATCH)
    return BATCH * _best_cut(means, len(means) // 2)


def _log_times(times_ns: ArrayLike) -> np.ndarray:
    times = np.asarray(times_ns, float)
    if not (np.isfinite(times) & (times > 0)).all():
        raise ValueError(
            "iteration times must be positive and finite; a clock that stopped or ran backwards cannot be"
            " judged"
        )
    return np.log(times)


def _batch_means(values: np.ndarray, batch: int) -> np.ndarray:
    """Means of consecutive batches; an incomplete batch at the end is left out."""
    count = len(values) // batch
    return values[: count * batch].reshape(count, batch).mean(axis=1)


def _best_cut(means: np.ndarray, largest: int) -> int:
    """The cut d <= `largest` that minimises sum over i >= d of (z_i - mean)^2 / (m - d)^2."""
    count = len(means)
    if count < 2:
        return 0
    centred = (means - means.mean())[::-1]  # the sums of squares below would lose digits far from zero
    left = np.arange(1, count + 1)
    squares = np.cumsum(centred**2) - np.cumsum(centred) ** 2 / left
    errors = (squares / left**2)[::-1]
    return int(np.argmin(errors[: largest + 1]))


class WarmUp:
    """Watches the iterations of a warm-up and says when it may end.

    It lasts at least 5 iterations and until 3 in a row compile nothing; then until the later half of it looks
    steady: until MSER, free to cut as much as it likes, cuts no more than half. Fewer than 25 iterations are
    looked at in shorter batches, of which there are always five or more: five batches of 5 would let no
    warm-up end before 25.

    Parameters
    ----------
    warmup_max : iterations after which it ends in any case
    """

    def __init__(self, warmup_max: int) -> None:
        self.warmup_max = warmup_max
        self.wall_ns: list[int] = []
        self._without_compiling = 0
        self._steady = False

    def observe(self, wall_ns: int, compiled: bool) -> None:
        """Take in one iteration."""
        self.wall_ns.append(wall_ns)
        self._without_compiling = 0 if compiled else self._without_compiling + 1
        enough = self._without_compiling >= WITHOUT_COMPILING
        long_enough = len(self.wall_ns) >= SHORTEST_WARMUP and enough
        self._steady = long_enough and 2 * _warmup_cut(self.wall_ns) <= len(self.wall_ns)

    @property
    def iterations(self) -> int:
        """How many were observed."""
        return len(self.wall_ns)

    @property
    def settled(self) -> bool:
        """Whether the warm-up may end."""
        return self._steady or self.exhausted

    @property
    def exhausted(self) -> bool:
        """Whether it ends only because `warmup_max` was reached."""
        return not self._steady and self.iterations >= self.warmup_max


def _warmup_cut(wall_ns: Sequence[int]) -> int:
    batch = max(1, min(BATCH, len(wall_ns) // BATCH))
    means = _batch_means(_log_times(wall_ns), batch)
    # Two batches must remain: of a single one the squared error is zero, and it would always be the best.
    return batch * _best_cut(means, max(0, len(means) - 2))


def region_alarm(times_ns: ArrayLike, cadence: int = 1) -> str | None:
    """Why a timed region of step-shaped work is not steady, or None.

    Two independent doubts must agree before a region is doubted, because MSER alone cuts up to 90 of 200
    clean iterations one time in twenty: it cuts more than 25 %, and the medians of the two halves differ by
    more than 3 standard errors, taken from the means of blocks so that neighbouring iterations may resemble
    one another. Never for jobs, whose iterations change by design.

    Parameters
    ----------
    times_ns : [N] time of each iteration, where it has one
    cadence : iterations after which periodic work repeats; the means over it are looked at instead

    Raises
    ------
    ValueError
        A time is not positive and finite.
    """
    times = np.asarray(times_ns, float)
    if cadence > 1:
        times = _batch_means(times, cadence)
    cut = mser5(times) if len(times) >= SHORTEST_REGION else 0
    if cut <= LARGEST_CUT * len(times):
        return None
    shift, error = _halves(np.log(times))
    if abs(shift) <= STANDARD_ERRORS * error:
        return None
    return (
        f"the first {cut * cadence} of {len(times) * cadence} iterations differ from the rest: "
        f"the later half is {abs(math.expm1(shift)):.1%} {'slower' if shift > 0 else 'faster'}"
    )


def _halves(log_times: np.ndarray) -> tuple[float, float]:
    """Difference of the medians of the later and earlier half, and its standard error from block means."""
    half = len(log_times) // 2
    earlier, later = log_times[:half], log_times[half : 2 * half]
    block = max(1, half // BLOCKS)
    variances = [
        np.var(means, ddof=1) / len(means)
        for means in (_batch_means(earlier, block), _batch_means(later, block))
    ]
    return float(np.median(later) - np.median(earlier)), math.sqrt(sum(variances))


DEVICE_WARM_NS = 1_000_000_000
"""A device's clocks rise under load: a warm-up on one lasts a second, however many iterations that takes."""

CADENCE_NS = 2_000_000_000
"""A cadence that takes longer is run whole in the first round's warm-up alone. What comes once in a cadence,
such as an evaluation, may compile, and its first time in a process finds nothing allocated yet: in a small
training an evaluation took a third longer then, of 40 % of the time. Once a round has told which places of
the cadence these are, warm-up is as short as it may be, and they are left untimed the first time."""

RARE = 1.25
"""Times an ordinary iteration, from which one is rare work."""


def warm_up(workload: Workload, clock: HostClock, compiling: CompileCounting, spec: TrialSpec) -> Warm:
    """Iterate until times rest; a job-shaped workload runs one job, which is discarded."""
    if workload.shape == "job":
        return discard_job(workload, clock, spec.measure.discard_s)
    marks, rule, warm_ns = Recorder(clock), WarmUp(spec.measure.warmup_max), 0
    whole_ns = 0.0 if spec.rare is not None else math.inf if spec.round == 0 else CADENCE_NS
    while True:
        start, delay_ns = clock.now_ns(), clock.delay_ns() or 0
        endless_step(workload, marks)
        clock.synchronize()  # without it these would be times of launches
        # Neither rest nor rare work is told, nor a turn as long as asked for, by what others had of the core.
        lost_ns = (clock.delay_ns() or 0) - delay_ns
        wall_ns = clock.now_ns() - start - lost_ns
        rule.observe(wall_ns, compiling.poll())
        warm_ns += wall_ns
        seen = rule.iterations >= workload.cadence or warm_ns >= whole_ns
        over = seen and rule.settled and (warm_ns >= DEVICE_WARM_NS or not clock.times_device)
        if ranks.agree(over, spec.world):
            return Warm(rule.wall_ns, not rule.exhausted)


def discard_job(workload: Workload, clock: HostClock, limit_s: float | None) -> Warm:
    """Run a job for nothing, whole or until `limit_s` has passed, and begin the next.

    A job of minutes is warm long before it ends. What it would have compiled later raises the region's alarm.
    GPUs are asked before they have done all of it.
    """
    start, steps = clock.now_ns(), 0
    while not workload.done() and (limit_s is None or clock.now_ns() - start < limit_s * 1e9):
        workload.step(NullClock())
        steps += 1
    loaded = gpus.visible() if clock.times_device else ()
    clock.synchronize()
    spent_ns = clock.now_ns() - start
    workload.reset()
    return Warm([spent_ns], True, loaded, steps)


@dataclass(frozen=True)
class Warm:
    """How warm-up went: its iterations, or one job of so many steps."""

    walls_ns: list[int]
    settled: bool
    loaded: tuple[Gpu, ...] = ()
    job_steps: int = 0

    @property
    def step_ns(self) -> int:
        """Typical time of an iteration once they rest, or of a step of the job; at least 1."""
        if self.job_steps:
            return max(1, self.walls_ns[0] // self.job_steps)
        return max(1, round(statistics.median(self.walls_ns[-max(5, len(self.walls_ns) // 2) :] or [1])))

    def rare(self, cadence: int) -> tuple[int, ...] | None:
        """Places of the cadence that take longer than others, except the ones that every warm-up begins with.

        None where not all of them were seen, and of jobs.
        """
        if self.job_steps or len(self.walls_ns) < cadence:
            return None
        later = list(enumerate(self.walls_ns))[SHORTEST_WARMUP:]
        return tuple(sorted({i % cadence for i, wall_ns in later if wall_ns > RARE * self.step_ns}))
