"""Warm-up: iterations until times rest, or a discarded job."""

from __future__ import annotations

from perfsweep.pipelines.store.trial_schema import TrialSpec
from perfsweep.pipelines.trial import process_group
from perfsweep.pipelines.trial.counting.counters import CompileCounting
from perfsweep.pipelines.trial.machine import gpus
from perfsweep.pipelines.trial.machine.gpus import Gpu
from perfsweep.pipelines.trial.timing.clock import HostClock
from perfsweep.pipelines.trial.timing.iterations import endless_step
from perfsweep.pipelines.trial.timing.recorder import Recorder
from perfsweep.pipelines.trial.timing.steady import WarmUp
from perfsweep.workloads.api import NullClock, Workload

DEVICE_WARM_NS = 1_000_000_000
"""A device's clocks rise under load: a warm-up on one lasts a second, however many iterations that takes."""


def warm_up(workload: Workload, clock: HostClock, compiling: CompileCounting, spec: TrialSpec) -> Warm:
    """Iterate until times rest; a job-shaped workload runs one job, which is discarded."""
    marks, walls, warm_ns = Recorder(clock), [], 0
    if workload.shape == "job":
        wall_ns, loaded = discard_job(workload, clock, spec.measure.discard_s)
        return Warm([wall_ns], True, loaded)
    rule = WarmUp(warmup_max=spec.measure.warmup_max)
    while True:
        start = clock.now_ns()
        endless_step(workload, marks)
        clock.synchronize()  # without it these would be times of launches
        walls.append(clock.now_ns() - start)
        rule.observe(walls[-1], compiling.poll())
        warm_ns += walls[-1]
        over = rule.settled and (warm_ns >= DEVICE_WARM_NS or not clock.times_device)
        if len(walls) % workload.cadence == 0 and process_group.agree(over, spec.world):
            return Warm(walls, not rule.exhausted)


def discard_job(workload: Workload, clock: HostClock, limit_s: float | None) -> tuple[int, tuple[Gpu, ...]]:
    """Run a job for nothing, whole or until `limit_s` is over, and begin the next.

    Returns its time in ns, and what GPUs told at its end, before they had done all of it. A job of minutes is
    warm long before it ends. What it would have compiled later raises the region's alarm.
    """
    start = clock.now_ns()
    while not workload.done() and (limit_s is None or clock.now_ns() - start < limit_s * 1e9):
        workload.step(NullClock())
    loaded = gpus.visible() if clock.times_device else ()
    clock.synchronize()
    spent_ns = clock.now_ns() - start
    workload.reset()
    return spent_ns, loaded


class Warm:
    """How warm-up went."""

    def __init__(self, walls_ns: list[int], settled: bool, loaded: tuple[Gpu, ...] = ()) -> None:
        self.walls_ns = walls_ns
        self.settled = settled
        self.loaded = loaded
