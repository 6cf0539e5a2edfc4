"""A timing trial of a workload that is set up: warm up, then time a region."""

from __future__ import annotations

import functools
import multiprocessing
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfsweep.pipelines.store.trial_files import write_status
from perfsweep.pipelines.store.trial_schema import FOUND_ON_DISK, TrialSpec
from perfsweep.pipelines.trial import ranks
from perfsweep.pipelines.trial.compiles import CompileCounting
from perfsweep.pipelines.trial.layout import settle_collector
from perfsweep.pipelines.trial.machine import energy, gpus
from perfsweep.pipelines.trial.machine.energy import Meter, Spent
from perfsweep.pipelines.trial.machine.gpus import Gpu
from perfsweep.pipelines.trial.machine.usage import Usage
from perfsweep.pipelines.trial.parent import Ready, node_name
from perfsweep.pipelines.trial.step_logging import MetricLog
from perfsweep.pipelines.trial.timing.clock import ChildClock, HostClock, clock_for
from perfsweep.pipelines.trial.timing.iterations import (
    endless_step,
    heavy,
    iterate,
    numbers_of,
    whole_cadences,
)
from perfsweep.pipelines.trial.timing.recorder import Recorder, Series, write_regions
from perfsweep.pipelines.trial.timing.steady import Warm, region_alarm, warm_up
from perfsweep.pipelines.trial.turns import Cut, Uncut, Wanted
from perfsweep.workloads.api import Device, NullClock, Work, Workload
from perfsweep.workloads.errors import RecordError
from perfsweep.workloads.peaks import peak


def timing_trial(
    workload: Workload, spec: TrialSpec, folder: Path, device: Device, log: MetricLog
) -> dict[str, Any]:
    """Warm up, then time whole cadences of iterations, or whole jobs, without turns; see `Timing.region`."""
    with Timing(workload, spec, device, log) as timing:
        timing.warm_up(folder)
        return timing.region(folder, Uncut())


def clock_of(workload: Workload, device: Device) -> HostClock:
    """The clock of the processes that do a workload's work: this process, or children that it waits for."""
    usage = workload.child_usage
    if (used := usage()) is None:
        return clock_for(device)
    return ChildClock(lambda: usage() or used, device.count)


class Timing:
    """A workload that is warmed up once and timed once."""

    def __init__(self, workload: Workload, spec: TrialSpec, device: Device, log: MetricLog) -> None:
        self._workload, self._spec, self._device, self._log = workload, spec, device, log
        self._clock = clock_of(workload, device)
        self._compiling = CompileCounting()
        self._warm = Warm([], True)
        self._steps = 0
        self._loaded: tuple[Gpu, ...] = ()
        self._meter: Meter | None = None
        self._others_rest = True

    def __enter__(self) -> Timing:
        self._compiling.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._compiling.__exit__(*exception)
        if self._meter is not None:
            self._meter.close()

    def warm_up(self, folder: Path) -> None:
        """Iterate until times are steady, or run one job untimed; then settle Python's collector."""
        write_status(folder, "warming up")
        self._clock.reset_peak()
        before, cpu_ns = self._clock.usage(), self._clock.cpu_ns()
        self._warm = warm_up(self._workload, self._clock, self._compiling, self._spec)
        self._clock.find_devices()
        self._steps = len(self._warm.walls_ns)
        self._loaded = self._warm.loaded
        usage = Usage.between(before, self._clock.usage())
        self._others_rest = usage.others_rest(self._clock.cpu_ns() - cpu_ns)
        settle_collector(type(self._workload), self._spec.arm.levels)
        # On each host the first rank reads the meter.
        first = ranks.local_rank(self._spec) == 0
        self._meter = Meter(
            self._clock.used_devices(), first or self._clock.times_device, self._spec.counter_s
        )
        self._look_under_load()
        self._clock.forget_warm_up()

    def ready(self) -> Ready:
        """What the pack needs to know before it gives turns."""
        workload, spec = self._workload, self._spec
        spares = workload.shape == "steps"
        job_steps = self._warm.job_steps * spec.measure.jobs
        return Ready(
            taken_bytes=self._clock.taken_bytes(),
            rests=self._others_rest
            and workload.child_usage() is None
            and not multiprocessing.active_children(),
            step_ns=self._warm.step_ns,
            steps=whole_cadences(workload, spec.timed_iterations) if spares else max(1, job_steps),
            spares=spares,
            rare=self._warm.rare(workload.cadence),
        )

    def region(self, folder: Path, turns: Cut) -> dict[str, Any]:
        """Time the region, in turns; returns fields of the record, and its `usage`.

        Step-shaped work: every place of the cadence is timed equally often. Job-shaped work: whole jobs.
        """
        workload, spec, clock, warm = self._workload, self._spec, self._clock, self._warm
        write_status(folder, "timing")
        meter = self._meter
        assert meter is not None, "a region comes after its warm-up"
        self._log.shorten(0)
        stretches = _Stretches(workload, clock, meter, self._compiling, spec.world)
        if workload.shape == "job":
            alarm = _timed_jobs(stretches, spec.measure.jobs, turns)
            self._steps = 0
        else:
            alarm = self._timed_steps(stretches, turns)
        series, units = stretches.series, stretches.units
        peak = clock.peak_bytes()
        together = self._together(series)
        region_ns = ranks.slowest_ns(together)
        spent = ranks.gathered(meter.spent(), spec.world)
        write_status(folder, "saving")
        compiled = self._compiling.result()
        _refuse_nothing(series, units)
        iterations = sum(len(part.wall_ns) for part in series)
        if ranks.leads(spec.world):
            every = ranks.iteration_arrays(together) if spec.world > 1 else {}
            write_regions(folder, series, warm.walls_ns, self._log.arrays(), every)
        return {
            "units": units,
            "iterations": iterations,
            "region_ns": region_ns,
            "region_cpu_ns": sum(part.region_cpu_ns for part in series),
            "usage": functools.reduce(operator.add, (part.usage for part in series)),
            "loaded": self._loaded,
            "first_iteration_s": warm.walls_ns[0] / 1e9 if warm.walls_ns else 0.0,
            "warmup_iterations": len(warm.walls_ns),
            "warmup_s": sum(warm.walls_ns) / 1e9,
            "settled": warm.settled and alarm is None,
            "alarm": alarm,
            "compile_s": compiled.get("compile_s") or 0.0,
            "recompiles": int(compiled.get("recompiles") or 0),
            "recompile_reason": self._compiling.main_reason,
            "counters": {
                **self._counters(),
                **clock.held(),
                **{name: compiled.get(name) for name in FOUND_ON_DISK},
            },
            "peak_bytes": peak,
            "mfu": share_of_peak(workload.work(), units, region_ns, self._device, spec.world),
            "numbers": numbers_of(workload),
            "reached": self._steps,
            **quantity_fields(workload, together, spent, units, iterations, spec.measure.jobs),
            **self._look_at_collectives(together),
        }

    def _timed_steps(self, stretches: _Stretches, turns: Cut) -> str | None:
        """Time one region of whole cadences, once more if it is not steady; returns why it still is not.

        In turns unsteady times are no reason to repeat it: all arms share the disturbance.
        """
        workload, world = self._workload, self._spec.world
        shared = not isinstance(turns, Uncut)
        alarm = None
        for _ in (1, 2):
            self._log.shorten(0)
            stretches.forget()
            cadence, iterations = workload.cadence, whole_cadences(workload, self._spec.timed_iterations)
            wanted = Wanted(cadence, iterations, self._steps, self._spec.rare or ())
            while wanted.left:
                turn = turns.next()
                self._untimed(turn.untimed)
                wanted.pass_over(turn.untimed)
                left = turn.steps
                while left > 0 and wanted.left:
                    self._untimed(wanted.skip())
                    left -= (steps := wanted.take(left))
                    stretches.steps(steps)
                    self._steps += steps
            again = stretches.compiled or not shared
            alarm = stretches.alarm or _unsteady(stretches.series, cadence, wanted.places)
            if not ranks.agree(again and alarm is not None, world):
                return alarm
        return alarm or "another rank was not steady"

    def _untimed(self, steps: int) -> None:
        """Run iterations that only refill caches, or whose place has been timed often enough."""
        rows = len(self._log)
        iterate(self._workload, NullClock(), steps)
        self._log.shorten(rows)
        self._steps += steps

    def _look_under_load(self) -> None:
        """Read clocks, power and throttle reasons while the device works: an idle device does not show them.

        Reading takes milliseconds, which must not be part of the region. So it happens during a cadence of
        untimed iterations, after which the device is synchronised.
        """
        if not self._clock.times_device or self._workload.shape == "job":
            return
        self._untimed(self._workload.cadence)
        self._loaded = gpus.visible()
        self._clock.synchronize()

    def _together(self, series: Sequence[Series]) -> list[ranks.Region]:
        """What every rank timed; every rank calls this after its part of the region."""
        own = ranks.Region(
            node_name(),
            tuple(part.region_ns for part in series),
            np.concatenate([part.wall_ns for part in series]),
            len(self._clock.used_devices()),
        )
        return ranks.gathered(own, self._spec.world)

    def _look_at_collectives(self, together: list[ranks.Region]) -> dict[str, Any]:
        """The figures of the ranks; some need further iterations, so they come after everything else."""
        if self._spec.world == 1:
            return {"ranks": None}
        found = ranks.figures(together)
        if self._workload.shape == "job":
            return {"ranks": found}
        own = ranks.profiled(lambda: endless_step(self._workload, NullClock()), self._clock.synchronize)
        return {"ranks": ranks.with_shares(found, ranks.gathered(own, self._spec.world))}

    def _counters(self) -> dict[str, float]:
        """The workload's own counts since set-up; of step-shaped work per iteration."""
        return {name: value / (self._steps or 1) for name, value in self._workload.counters().items()}


def _refuse_nothing(series: Sequence[Series], units: float) -> None:
    """Refuse a region without iterations or units, or with a clock that stopped or ran backwards."""
    if not any(len(part.wall_ns) for part in series):
        raise RecordError(
            "the workload ended before an iteration could be timed; give it more work for one job"
        )
    if not units > 0:
        raise RecordError(
            f"the timed region did {units:g} units of work; progress() must grow with every iteration"
        )
    for part in series:
        if part.region_ns <= 0 or (part.wall_ns < 0).any():
            raise RecordError(
                "the clock stopped or ran backwards inside the timed region; measure this arm again"
            )


class _Stretches:
    """The timed parts of a region: nothing but steps between two readings of all clocks."""

    def __init__(
        self, workload: Workload, clock: HostClock, meter: Meter, compiling: CompileCounting, world: int
    ) -> None:
        self.workload, self._clock, self._meter = workload, clock, meter
        self._compiling, self._world = compiling, world
        self._recorder = Recorder(clock)
        self.forget()

    def forget(self) -> None:
        """Discard the measurements of the region, to begin it again."""
        self._meter.forget()
        self.series: list[Series] = []
        self.units = 0.0
        self.compiled = False

    @property
    def alarm(self) -> str | None:
        """Why the times of the region cannot be trusted; None if they can."""
        return "compiled inside the timed region" if self.compiled else None

    def steps(self, steps: int) -> None:
        """Time a number of iterations of endless work."""
        before = self.workload.progress()
        self._begin()
        step, lap, workload, recorder = endless_step, self._recorder.lap, self.workload, self._recorder
        for _ in range(steps):
            step(workload, recorder)
            lap()
        self._end()
        self.units += self.workload.progress() - before

    def job_steps(self, most: int) -> None:
        """Time steps of a job, up to `most` or to its end."""
        workload, recorder = self.workload, self._recorder
        self._begin()
        while most > 0 and not workload.done():
            workload.step(recorder)
            recorder.lap()
            most -= 1
        self._end()

    def _begin(self) -> None:
        self._compiling.poll()
        self._clock.synchronize()
        self._meter.begin()
        ranks.barrier(self._world)
        self._recorder.start()

    def _end(self) -> None:
        self._recorder.stop()
        self._meter.end()
        self.series.append(self._recorder.series())
        self.compiled = self._compiling.poll() or self.compiled


def _unsteady(series: Sequence[Series], cadence: int, places: Sequence[int]) -> str | None:
    """Why times are not steady, once sorted by the places of the cadence; None if they are."""
    times_ns = np.concatenate([part.judged_ns(cadence) for part in series])
    if cadence > 1 and len(times_ns) == len(places):
        times_ns = times_ns[np.argsort(places, kind="stable").reshape(cadence, -1).T.ravel()]
    return region_alarm(times_ns, cadence)


def _timed_jobs(stretches: _Stretches, jobs: int, turns: Cut) -> str | None:
    """Time whole jobs, without the resets between them; returns why the times cannot be trusted."""
    workload = stretches.workload
    for job in range(jobs):
        if job:
            workload.reset()
        while True:
            stretches.job_steps(turns.next().steps)
            if workload.done():
                break
        stretches.units += workload.progress()
    return stretches.alarm


def quantity_fields(
    workload: Workload,
    together: Sequence[ranks.Region],
    spent: Sequence[Spent],
    units: float,
    iterations: int,
    jobs: int,
) -> dict[str, Any]:
    """Fields of the record: energy, or why there is none, devices, heavy iterations, units of a whole job."""
    found = energy.record_fields(spent, workload.shape == "job")
    more = {"devices": float(sum(rank.devices for rank in together))}
    if not workload.cadence_is_known:
        more["heavy_iterations"], more["heavy_share"] = heavy(together[0].wall_ns)
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


def share_of_peak(work: Work, units: float, region_ns: int, device: Device, world: int = 1) -> float | None:
    """Work of a timed region by what its devices can do in that time; None if formula or peak is unknown.

    Parameters
    ----------
    units : done in the region, by all ranks together
    world : processes that did it; the ones that share a device count once
    """
    known = peak(device.name) if device.type == "cuda" else None
    rate = known.flops_per_s(work.products) if known is not None else None
    if work.flops is None or rate is None:
        return None
    return work.flops * units / (region_ns / 1e9) / (rate * max(1, min(world, device.count)))
