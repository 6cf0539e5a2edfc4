"""One process that profiles one arm: a slice of it in turns with and without a tool, and what the tool saw.

Run as ``python -m perfsweep.pipelines.profiling.profiled_process <spec.json> [<rank>]``, or forked. It gives
no times that anything is compared by.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from perfsweep.pipelines.config.validation import workload_config
from perfsweep.pipelines.profiling.tool import BARE, Findings, Measured, Slice, Tool, make, slice_of
from perfsweep.pipelines.store.planned import load_workload
from perfsweep.pipelines.store.profiles import Profile, ProfileSpec, read_spec, write_profile
from perfsweep.pipelines.store.records import Outcome, TrialRecord, TrialSpec, write_record, write_status
from perfsweep.pipelines.trial import scratch
from perfsweep.pipelines.trial.failures import classify
from perfsweep.pipelines.trial.parent import by_itself, detach
from perfsweep.pipelines.trial.scene import Scene, set_up
from perfsweep.pipelines.trial.timing.clock import HostClock, clock_for
from perfsweep.pipelines.trial.timing.recorder import NO_TIME, Recorder, Series
from perfsweep.pipelines.trial.timing.regions import Timing
from perfsweep.workloads.api import NullClock, Workload
from perfsweep.workloads.errors import ConfigError, UnsupportedHere

DEBUG_FIELD = "debug_log"
"""A field of this name in a workload's configuration says that it logs as at level DEBUG."""


def run(spec: ProfileSpec, folder: Path, rank: int = 0) -> TrialRecord:
    """Profile an arm and publish the record; the workload's failures are outcomes. Rank 0 alone writes."""
    began = time.monotonic()
    found: dict[str, Any] = {"outcome": Outcome.OK}
    try:
        profile = _profiled(spec, folder, rank)
        if rank == 0:
            write_profile(folder, profile)
    except Exception as error:  # noqa: BLE001 - the workload's code is not ours: whatever it raises is an outcome
        outcome, failure = classify(error)
        found = {"outcome": outcome, "failure": failure}
    record = TrialRecord.of(spec.trial, began, **found)
    if rank == 0:
        write_record(folder, record)
        scratch.remove(folder)
    return record


def _profiled(spec: ProfileSpec, folder: Path, rank: int) -> Profile:
    cls, _ = load_workload(spec.trial.workload, spec.trial.config)
    # Ranks must run the same iterations, so that all are profiled alike; only what rank 0 found is kept.
    kept = folder if rank == 0 else folder / "scratch" / f"profile{rank}"
    kept.mkdir(parents=True, exist_ok=True)
    tool = make(spec.options, kept)
    own, debugging = spec.trial, nullcontext()
    if spec.options.debug_log != "off":
        own, by_workload = at_debug(cls, spec.trial)
        debugging = _debugging(kept, by_workload)
    with tool.around(), debugging as logged, set_up(own, folder, rank) as scene:
        refuse_other_processes(scene.workload)
        cadence, iterations = scene.workload.cadence, spec.trial.timed_iterations
        chosen = slice_of(spec.options, tool.samples, cls.shape, cadence, iterations)
        with _warmed_up(scene, own, folder, chosen):
            write_status(folder, "profiling")
            repeated = Repeated(scene, chosen, tool, spec)
            repeated.run()
            write_status(folder, "saving")
            found = tool.finish(repeated.measured())
        unit = scene.workload.unit
    return _profile(spec, unit, repeated, found, logged)


def refuse_other_processes(workload: Workload) -> None:
    """Refuse a workload whose work is not done in this process.

    Raises
    ------
    UnsupportedHere
        A profile would show how this process waits.
    """
    if workload.child_usage() is not None:
        raise UnsupportedHere(
            "its work is done in other processes, where a profiler of this one sees nothing; write a profiler"
            " into the command"
        )


@contextmanager
def _warmed_up(scene: Scene, spec: Any, folder: Path, chosen: Slice) -> Iterator[None]:
    """The workload as a timing trial finds it, unless the slice is cold."""
    if chosen.cold:
        yield
        return
    with Timing(scene.workload, spec, scene.device, scene.log) as timing:
        timing.warm_up(folder)
        yield


@dataclasses.dataclass(frozen=True)
class Block:
    """One repetition of a slice. `series` where the recorder was on."""

    ns: int
    iterations: int
    units: float
    series: Series | None

    @property
    def per_iteration_ns(self) -> float:
        return self.ns / self.iterations


class Repeated:
    """A slice so often with the tool and so often without, in turns whose order alternates."""

    def __init__(self, scene: Scene, chosen: Slice, tool: Tool, spec: ProfileSpec) -> None:
        self.slice, self.bare, self.profiled = chosen, list[Block](), list[Block]()
        self._scene, self._tool, self._options = scene, tool, spec.options
        self._walk = Walk(scene.workload, chosen)
        self._clock = clock_for(scene.device)

    def run(self) -> None:
        """Do all repetitions; a cold slice has one, with the tool, or without where there is none."""
        if self.slice.cold:
            self._without() if self._options.tool == BARE else self._with()
            return
        for number in range(self._options.repeats):
            for block in (self._without, self._with) if number % 2 == 0 else (self._with, self._without):
                block()
        self.slice = self._walk.slice

    def _with(self) -> None:
        self.profiled.append(self._block(self._tool))

    def _without(self) -> None:
        with self._tool.resting():
            self.bare.append(self._block(Tool(self._options, self._tool.folder)))

    def measured(self) -> Measured:
        """What the tool may want to know of the slice."""
        timed = self.bare or self.profiled
        total = sum(block.iterations for block in timed)
        phases: dict[str, float] = {}
        for block in timed:
            for name, time_ns in phase_totals(block.series).items():
                phases[name] = phases.get(name, 0.0) + time_ns / total
        return Measured(
            sum(block.ns for block in timed) / total, phases, sum(block.iterations for block in self.profiled)
        )

    def _block(self, tool: Tool) -> Block:
        """One repetition under `tool`."""
        self._scene.log.shorten(0)
        lead = self._walk.seek(self._options.wait + self._options.warmup if tool.watches_before else 0)
        hook = self._options.hook == "on" or self._tool.needs_phases
        marks = Marks(self._clock, Recorder(self._clock) if hook else None, tool)
        with tool.block(lead, self._walk.slice.length) as tick:
            for _ in range(lead):  # which the tool wants to see
                self._walk.step(marks)
                tick()
            units = self._scene.workload.progress()
            marks.start()
            start = self._clock.now_ns()
            iterations = 0
            while self._walk.goes_on(iterations):
                self._walk.step(marks)
                marks.lap()
                tick()
                iterations += 1
            marks.stop()
            ns = self._clock.now_ns() - start
            # A tool's end comes after the clock's: what it writes is no part of an iteration.
            units = self._scene.workload.progress() - units
        return Block(ns, iterations, units, marks.series)


class Walk:
    """Brings a workload to the beginning of its slice, again and again."""

    def __init__(self, workload: Workload, chosen: Slice) -> None:
        self._workload, self.slice = workload, chosen
        self._job = workload.shape == "job"
        self._at, self._fresh = 0, True

    def seek(self, lead: int) -> int:
        """Go on until `lead` iterations before the slice begins; returns how many of them there are.

        Raises
        ------
        ConfigError
            The job ends before the slice begins.
        """
        lead = min(lead, self.slice.start)
        wanted = self.slice.start - lead
        if not self._job:
            while self._at < wanted or (self._at - wanted) % self._workload.cadence:
                self.step(NullClock())
            return lead
        self._begin_job()
        while self._at < self.slice.start - lead and not self._workload.done():
            self.step(NullClock())
        if not self._workload.done():
            return lead
        if not self.slice.movable or self.slice.start == 0:
            raise ConfigError(
                f"profile.slice: the job has {self._at} iterations, and the slice begins at"
                f" {self.slice.start}"
            )
        self.slice = dataclasses.replace(self.slice, start=0)
        self._begin_job()
        return 0

    def _begin_job(self) -> None:
        if not self._fresh:
            self._workload.reset()
        self._at, self._fresh = 0, False

    def goes_on(self, done: int) -> bool:
        """Whether the slice has more iterations than the `done` ones."""
        return (self.slice.length is None or done < self.slice.length) and not self._workload.done()

    def step(self, clock: Any) -> None:
        """One iteration."""
        self._workload.step(clock)
        self._at += 1


class Marks:
    """The clock of a block: the recorder where it is on, and the tool's own phases where it has any."""

    def __init__(self, clock: HostClock, recorder: Recorder | None, tool: Tool) -> None:
        self._clock, self._recorder, self._tool = clock, recorder, tool
        self.series: Series | None = None

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Mark a phase of the iteration."""
        own = self._tool.phase(name)
        if own is not None:
            return own
        return nullcontext() if self._recorder is None else self._recorder.phase(name)

    def start(self) -> None:
        """The slice begins."""
        if self._recorder is None:
            self._clock.synchronize()
        else:
            self._recorder.start()

    def lap(self) -> None:
        """An iteration has ended."""
        if self._recorder is not None:
            self._recorder.lap()

    def stop(self) -> None:
        """The slice has ended."""
        if self._recorder is None:
            self._clock.synchronize()
        else:
            self._recorder.stop()
            self.series = self._recorder.series()


def phase_totals(series: Series | None) -> dict[str, float]:
    """Time of each phase over a block, on the device where all of it was seen there."""
    if series is None:
        return {}
    found = {name: float(times.sum()) for name, times in series.host_phases.items()}
    whole = {name: times for name, times in series.device_phases.items() if not (times == NO_TIME).any()}
    return {**found, **{name: float(times.sum()) for name, times in whole.items()}}


def at_debug(cls: type[Workload], trial: TrialSpec) -> tuple[TrialSpec, bool]:
    """What the trial is told at level DEBUG, and whether the workload has a field for it."""
    if DEBUG_FIELD not in {field.name for field in dataclasses.fields(cls.Config)}:
        return trial, False
    trial = dataclasses.replace(trial, config={**trial.config, DEBUG_FIELD: True})
    workload_config(cls, trial.config)
    return trial, True


class DebugLog(logging.FileHandler):
    """Writes everything that Python's loggers say, and counts it."""

    def __init__(self, file: Path, by_workload: bool) -> None:
        super().__init__(file, mode="w")
        self.lines, self.by_workload = 0, by_workload

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        self.lines += 1
        super().emit(record)

    def note(self) -> str:
        """What debug logging changed."""
        field = (
            f"workload.{DEBUG_FIELD}=true"
            if self.by_workload
            else f"the workload has no {DEBUG_FIELD} to switch on"
        )
        return f"debug log on: {field}, and Python's loggers wrote {self.lines} lines"


@contextmanager
def _debugging(folder: Path, by_workload: bool) -> Iterator[DebugLog]:
    """Python's loggers at level DEBUG, into a file of the profile's folder."""
    root, handler = logging.getLogger(), DebugLog(folder / "debug.log", by_workload)
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield handler
    finally:
        root.setLevel(before)
        root.removeHandler(handler)
        handler.close()


def _profile(
    spec: ProfileSpec, unit: str, repeated: Repeated, found: Findings, logged: DebugLog | None
) -> Profile:
    notes = [*found.notes, *([logged.note()] if logged else [])]
    profiled = repeated.profiled
    return Profile(
        tool=spec.options.tool,
        variant=spec.options.variant,
        workload=spec.trial.workload,
        unit=unit,
        arm=spec.trial.arm,
        slice=str(repeated.slice),
        iterations=sum(block.iterations for block in profiled),
        units=sum(block.units for block in profiled),
        bare_ns=tuple(block.per_iteration_ns for block in repeated.bare),
        profiled_ns=tuple(block.per_iteration_ns for block in profiled),
        phases=repeated.measured().phases,
        costs=found.costs,
        facts=dict(found.facts),
        findings=found.findings,
        notes=tuple(notes),
    )


def forked(spec_file: str) -> None:
    """First function of a forked profile process."""
    detach(Path(spec_file).with_name("log.txt"))
    main([spec_file])


def main(arguments: list[str]) -> int:
    """Profile as a spec.json says; the exit status says only whether a record was written."""
    file = Path(arguments[0])
    run(read_spec(file), file.parent, int(arguments[1]) if len(arguments) > 1 else 0)
    return 0


if __name__ == "__main__":
    by_itself(main)
