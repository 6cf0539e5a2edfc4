"""What a timing trial does with a workload once it is set up: warm up, then time whole regions."""

from __future__ import annotations

import functools
import multiprocessing
import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from perfsweep.pipelines.store.trial_files import write_status
from perfsweep.pipelines.store.trial_schema import FOUND_ON_DISK, RankFigures, TrialSpec
from perfsweep.pipelines.trial import process_group
from perfsweep.pipelines.trial.collector import settle_collector
from perfsweep.pipelines.trial.counting.counters import CompileCounting
from perfsweep.pipelines.trial.machine import gpus
from perfsweep.pipelines.trial.machine.gpus import Gpu
from perfsweep.pipelines.trial.machine.usage import Usage
from perfsweep.pipelines.trial.timing import quantities, ranks
from perfsweep.pipelines.trial.timing.clock import ChildClock, HostClock, clock_for
from perfsweep.pipelines.trial.timing.iterations import Slices, endless_step, iterate, numbers_of
from perfsweep.pipelines.trial.timing.quantities import Meter, share_of_peak
from perfsweep.pipelines.trial.timing.recorder import Recorder, Series
from perfsweep.pipelines.trial.timing.series import write_regions
from perfsweep.pipelines.trial.timing.steady import Warm, region_alarm, warm_up
from perfsweep.workloads.api import Device, NullClock, Workload
from perfsweep.workloads.errors import RecordError


class MetricLog(Protocol):
    """Takes one row of metrics per iteration; see `perfsweep.pipelines.trial.step_logging`."""

    calls: int

    def arrays(self) -> dict[str, np.ndarray]:
        """Rows kept so far, one array for each key."""
        ...

    def clear(self) -> None:
        """Forget rows kept so far."""
        ...


def timing_trial(
    workload: Workload, spec: TrialSpec, folder: Path, device: Device, log: MetricLog
) -> dict[str, Any]:
    """Warm up, then time whole cadences of iterations, or whole jobs; see `Timing.turn`."""
    with Timing(workload, spec, device, log) as timing:
        timing.warm_up(folder)
        found = timing.turn(folder)
        return found | timing.look_at_collectives(found["ranks"])


def clock_of(workload: Workload, device: Device) -> HostClock:
    """The clock of the processes that do a workload's work: of this one, or of those it waits for."""
    usage = workload.child_usage
    if (used := usage()) is None:
        return clock_for(device)
    return ChildClock(lambda: usage() or used, device.count)


class Timing:
    """A workload that is warmed up once and timed once, or in turns with the processes of other arms."""

    def __init__(self, workload: Workload, spec: TrialSpec, device: Device, log: MetricLog) -> None:
        self._workload, self._spec, self._device, self._log = workload, spec, device, log
        self._clock = clock_of(workload, device)
        self._compiling = CompileCounting()
        self._warm = Warm([], True)
        self._steps = 0
        self._job_waits = True
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
        """Iterate until times rest, or run the discarded job; then bring Python's collector to rest."""
        write_status(folder, "warming up")
        self._clock.reset_peak()
        before, cpu_ns = self._clock.usage(), self._clock.cpu_ns()
        self._warm = warm_up(self._workload, self._clock, self._compiling, self._spec)
        self._steps = len(self._warm.walls_ns)
        self._loaded = self._warm.loaded
        usage = Usage.between(before, self._clock.usage())
        self._others_rest = usage.others_rest(self._clock.cpu_ns() - cpu_ns)
        settle_collector(type(self._workload), self._spec.arm.levels)

    @property
    def taken_bytes(self) -> int:
        """Memory that the process keeps from those of other arms."""
        return self._clock.taken_bytes()

    @property
    def rests(self) -> bool:
        """Whether nothing of this arm works on while it waits in the middle of a region."""
        return (
            self._workload.shape == "steps"
            and self._device.type == "cpu"
            and self._spec.world == 1
            and self._others_rest
            and self._workload.child_usage() is None
            and not multiprocessing.active_children()
        )

    def turn(
        self, folder: Path, discarded: int = 0, others: Callable[[], None] | None = None
    ) -> dict[str, Any]:
        """One timed region, after iterations that are not; returns fields of the record, and its `usage`.

        Warm-up and compilations in it are those of the process, the same in all of its turns. With `others`
        the region is cut into `measure.slices`, and between two of them `others` lets other arms work.
        """
        workload, spec, clock, warm = self._workload, self._spec, self._clock, self._warm
        write_status(folder, "timing")
        timed = (workload, clock, self._compiling, spec, meter := self._meter_at_rest())
        if workload.shape == "job":
            if not self._job_waits:
                workload.reset()
            clock.forget_warm_up()
            self._log.clear()
            series, units, alarm = _timed_jobs(*timed)
            self._steps = 0
            self._job_waits = False
        else:
            self._steps += self._look_under_load()
            clock.forget_warm_up()
            slices = Slices(workload, spec, others, discarded)
            series, units, alarm, steps = _timed_steps(*timed, self._log, slices)
            self._steps += steps
        peak = clock.peak_bytes()
        together = self._together(series)
        region_ns = ranks.slowest_ns(together)
        spent = ranks.gathered(meter.spent(), spec.world)
        write_status(folder, "saving")
        compiled = self._compiling.result()
        _refuse_nothing(series, units)
        iterations = sum(len(part.wall_ns) for part in series)
        if process_group.leads(spec.world):
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
            "counters": {
                **self._counters(),
                **clock.held(),
                **{name: compiled.get(name) for name in FOUND_ON_DISK},
            },
            "peak_bytes": peak,
            "mfu": share_of_peak(workload.work(), units, region_ns, self._device, spec.world),
            "numbers": numbers_of(workload),
            "reached": self._steps,
            "ranks": ranks.figures(together) if spec.world > 1 else None,
            **quantities.record_fields(workload, together, spent, units, iterations, spec.measure.jobs),
        }

    def _meter_at_rest(self) -> Meter:
        """The meter of the devices that are in use once all is warm; of ranks on one host the first reads."""
        if self._meter is None:
            first = process_group.local_rank(self._spec) == 0
            self._meter = Meter(self._clock, first or self._clock.times_device, self._spec.counter_s)
        self._meter.forget()
        return self._meter

    def _look_under_load(self) -> int:
        """Ask for clocks, power and throttle reasons while the device works; the iterations that it took.

        A device that rests tells of neither. The questions take milliseconds, which must not fall into the
        region, so that the device is given a cadence of iterations for them, and is then waited for.
        """
        if not self._clock.times_device:
            return 0
        iterate(self._workload, NullClock(), self._workload.cadence)
        self._loaded = gpus.visible()
        self._clock.synchronize()
        return self._workload.cadence

    def _together(self, series: Sequence[Series]) -> list[ranks.Region]:
        """What every rank timed; all come here when they have done their part of the region."""
        own = ranks.own_region(
            [part.region_ns for part in series],
            [part.wall_ns for part in series],
            len(self._clock.used_devices()),
        )
        return ranks.gathered(own, self._spec.world)

    def look_at_collectives(self, found: RankFigures | None) -> dict[str, Any]:
        """Complete the ranks' figures by what only more iterations tell, once all else is measured."""
        if found is None or self._workload.shape == "job":
            return {}
        own = ranks.profiled(lambda: endless_step(self._workload, NullClock()), self._clock.synchronize)
        return {"ranks": ranks.with_shares(found, ranks.gathered(own, self._spec.world))}

    def _counters(self) -> dict[str, float]:
        """The workload's own counts since set-up, of steps-shaped work for one iteration."""
        return {name: value / (self._steps or 1) for name, value in self._workload.counters().items()}


def _refuse_nothing(series: Sequence[Series], units: float) -> None:
    """Refuse figures divided by nothing, or by a clock that stood still or ran backwards."""
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
                "the clock stood still or ran backwards inside the timed region; measure this arm again"
            )


def _timed_steps(
    workload: Workload,
    clock: HostClock,
    compiling: CompileCounting,
    spec: TrialSpec,
    meter: Meter,
    log: MetricLog,
    slices: Slices,
) -> tuple[list[Series], float, str | None, int]:
    """One region of whole cadences, again where it does not look steady; last, the iterations it took.

    Where other arms take turns with it, what only the times say is no reason to measure it again: they share
    what troubled it.
    """
    steps = 0
    for _ in (1, 2):
        log.clear()
        meter.forget()
        series, units, alarm = [], 0.0, None
        recorder = Recorder(clock)
        for part, iterations in enumerate(slices.sizes):
            steps += slices.begin(part) + iterations
            compiling.poll()
            units_before = workload.progress()
            clock.synchronize()
            meter.begin()
            ranks.barrier(spec.world)
            recorder.start()
            for _ in range(iterations):
                endless_step(workload, recorder)
                recorder.lap()
            recorder.stop()
            meter.end()
            series.append(recorder.series())
            units += workload.progress() - units_before
            alarm = alarm or ("compiled inside the timed region" if compiling.poll() else None)
        again = alarm is not None or not slices.shared
        alarm = alarm or _unsteady(series, workload.cadence)
        if not process_group.agree(again and alarm is not None, spec.world):
            return series, units, alarm, steps
    return series, units, alarm or "another rank was not steady", steps


def _unsteady(series: Sequence[Series], cadence: int) -> str | None:
    times_ns = np.concatenate([part.judged_ns(cadence) for part in series])
    return region_alarm(times_ns, np.concatenate([part.flags for part in series]), cadence)


def _timed_jobs(
    workload: Workload, clock: HostClock, compiling: CompileCounting, spec: TrialSpec, meter: Meter
) -> tuple[list[Series], float, str | None]:
    """Whole jobs, each a region of its own; starting the next one is not part of any."""
    series, units = [], 0.0
    compiling.poll()
    for job in range(spec.measure.jobs):
        if job:
            workload.reset()
        recorder = Recorder(clock)
        clock.synchronize()
        meter.begin()
        ranks.barrier(spec.world)
        recorder.start()
        while not workload.done():
            workload.step(recorder)
            recorder.lap()
        recorder.stop()
        meter.end()
        series.append(recorder.series())
        units += workload.progress()
    return series, units, "compiled inside the timed region" if compiling.poll() else None
