"""A process that runs an arm: set-up, warm-up, timed region, record; once, or in turns with other arms'.

Started by `pipelines.execution.spawn`: forked from a server that has imported torch, or by exec with the path
of a spec.json.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipelines.store.trial_files import (
    read_spec,
    sizes_of_arrays,
    write_rank_failure,
    write_record,
    write_status,
)
from pipelines.store.trial_schema import Failure, Kind, Outcome, TrialRecord, TrialSpec
from pipelines.trial import (
    calibration,
    compile_cache,
    energy,
    environment,
    installed,
    layout,
    process_group,
    scratch,
)
from pipelines.trial.environment import HostUsage
from pipelines.trial.identity import code_digest
from pipelines.trial.memory_snapshot import is_oom, keep_on_oom
from pipelines.trial.parent import Reply, die_with_parent
from pipelines.trial.planned import load_workload
from pipelines.trial.regions import Timing, prepare_collector, timing_trial
from pipelines.trial.step_logging import BufferedLog, LiveLog
from pipelines.trial.untimed import counting_trial, course_trial, evidence_trial, quality_trial, result_trial
from workloads.api import Context, Device, Level, Workload
from workloads.errors import ConfigError, UnsupportedHere


def run(spec: TrialSpec, folder: Path, rank: int = 0) -> TrialRecord:
    """Run a trial and publish its record; whatever the workload does ends as an outcome.

    All ranks of a process group run the same iterations; rank 0 alone writes.
    """
    record = _record(spec, folder, rank, lambda: _run(spec, folder, rank))
    if rank == 0:
        scratch.remove(folder)
    return record


def serve(spec: TrialSpec, folder: Path, rank: int, pipe: Connection) -> None:
    """Warm up once, then take a turn for each path of a spec.json from `pipe`, until it is closed.

    Waiting for a turn is a blocking read: it costs the other arms nothing. Each turn is a record of its own
    and answered by a `Reply`, and so is each slice of one but the last; after a turn that is not ok the
    process ends: its state is unknown.
    """
    turns = Turns(pipe, time.time())
    try:
        with (
            set_up(spec, folder, rank) as scene,
            Timing(scene.workload, spec, scene.device, scene.log) as timing,
        ):
            timing.warm_up(folder)
            turns.reply(Reply(taken_bytes=timing.taken_bytes, rests=timing.rests))
            while (file := turns.next()) is not None:
                record = _turn(scene, timing, read_spec(file), file.parent, rank, turns)
                turns.reply(Reply(record.outcome, record.failure))
                if record.outcome is not Outcome.OK:
                    return
    except Exception as error:  # noqa: BLE001 - see `_record`
        pipe.send(Reply(*_outcome_of(error, folder, rank)))
    finally:
        if rank == 0:
            scratch.remove(folder)


class Turns:
    """The waits of a process between its turns, and between the slices of one.

    Parameters
    ----------
    began : when the process began, in seconds since the epoch
    """

    def __init__(self, pipe: Connection, began: float) -> None:
        self._pipe = pipe
        self._working_since, self._worked_s = began, 0.0
        self.waits: list[tuple[HostUsage, HostUsage]] = []

    def next(self) -> Path | None:
        """Wait for the next turn; None where there is none."""
        self.waits.clear()
        try:
            file = Path(self._pipe.recv())
        except EOFError:
            return None
        self._working_since = time.time()
        return file

    def reply(self, reply: Reply) -> None:
        """Say how a turn ended."""
        self._rest()
        self._pipe.send(reply)

    def others(self) -> None:
        """Let others work in the middle of a turn, until they have.

        Raises
        ------
        SystemExit
            The pack is gone, or needs this process no more.
        """
        before = environment.host_usage()
        self._rest()
        self._pipe.send(Reply(waits=True))
        try:
            self._pipe.recv()
        except EOFError as error:
            raise SystemExit(1) from error
        self._working_since = time.time()
        self.waits.append((before, environment.host_usage()))

    def worked_s(self) -> float:
        """Seconds since this was asked last, or since the process began, without the waits."""
        now = time.time()
        worked_s, self._worked_s = self._worked_s + now - self._working_since, 0.0
        self._working_since = now
        return worked_s

    def _rest(self) -> None:
        self._worked_s += time.time() - self._working_since


def _turn(
    scene: Scene, timing: Timing, spec: TrialSpec, folder: Path, rank: int, turns: Turns
) -> TrialRecord:
    # The first iteration meets caches full of other arms' data; a turn of one iteration has none to spare.
    discarded = int(spec.timed_iterations > 1)
    if spec.measure.slices == 1 or not timing.rests:
        return _record(
            spec, folder, rank, lambda: scene.measure(spec, lambda: timing.turn(folder, discarded))
        )

    def measured() -> dict[str, Any]:
        return scene.measure(spec, lambda: timing.turn(folder, discarded, turns.others), turns.waits)

    return _record(spec, folder, rank, measured, turns.worked_s)


def _record(
    spec: TrialSpec,
    folder: Path,
    rank: int,
    work: Callable[[], dict[str, Any]],
    worked_s: Callable[[], float] | None = None,
) -> TrialRecord:
    started = time.time()
    try:
        found = work()
    except Exception as error:  # noqa: BLE001 - the workload's code is not ours: whatever it raises is an outcome
        outcome, failure = _outcome_of(error, folder, rank)
        print(failure.traceback, file=sys.stderr, flush=True)  # the log is where a person looks first
        found = {"outcome": outcome, "failure": failure}
    if worked_s:
        started = time.time() - worked_s()
    record = TrialRecord.of(spec, started, files=sizes_of_arrays(folder), **found)
    if spec.world > 1 and record.failure is not None:
        # What one rank raises ends the others with errors that only say so: whoever failed first says why.
        write_rank_failure(folder, rank, record.outcome, record.failure)
    elif rank == 0:
        write_record(folder, record)
    return record


def _outcome_of(error: Exception, folder: Path, rank: int) -> tuple[Outcome, Failure]:
    """The outcome that an exception is; what held the memory is kept while the exception still holds it."""
    outcome, failure = classify(error)
    if outcome is Outcome.OOM and rank == 0:
        keep_on_oom(folder)
    return outcome, failure


def classify(error: Exception) -> tuple[Outcome, Failure]:
    """The outcome that an exception is, and why."""
    if isinstance(error, UnsupportedHere):
        return Outcome.UNSUPPORTED, Failure(type="UnsupportedHere", message=str(error))
    return Outcome.OOM if is_oom(error) else Outcome.FAILED, as_failure(error)


def as_failure(error: BaseException) -> Failure:
    """An exception as data."""
    text = "".join(traceback.format_exception(error))
    return Failure(type=type(error).__name__, message=str(error), where=_place(error), traceback=text)


def _place(error: BaseException) -> str:
    """The innermost line that is neither ours nor a library's; of an error inside those the innermost."""
    frames = traceback.extract_tb(error.__traceback__)
    libraries = (*sysconfig.get_paths().values(), str(Path(__file__).parents[1]))
    own = [frame for frame in frames if not frame.filename.startswith((*libraries, "<"))] or frames
    return next((f"{one.filename}:{one.lineno}, in {one.name}: {one.line}" for one in own[::-1]), "")


MEASURE = {
    Kind.TIMING: timing_trial,
    Kind.COUNTING: counting_trial,
    Kind.EVIDENCE: evidence_trial,
    Kind.COURSE: course_trial,
    Kind.QUALITY: quality_trial,
    Kind.RESULT: result_trial,
}


def _run(spec: TrialSpec, folder: Path, rank: int) -> dict[str, Any]:
    """Everything between start and record, as fields of the record."""
    with set_up(spec, folder, rank) as scene:
        measure = MEASURE[spec.kind]
        return scene.measure(spec, lambda: measure(scene.workload, spec, folder, scene.device, scene.log))


@dataclasses.dataclass(frozen=True)
class Scene:
    """A workload that is set up, and what belongs into each of its records."""

    workload: Workload
    device: Device
    log: BufferedLog | LiveLog
    setup_s: float
    calibration_ns: int | None = None

    def measure(
        self,
        spec: TrialSpec,
        measure: Callable[[], dict[str, Any]],
        waits: Sequence[tuple[HostUsage, HostUsage]] = (),
    ) -> dict[str, Any]:
        """What `measure` found, with the facts around it; what others do in its `waits` disturbs nothing."""
        before = environment.host_usage(self.workload.child_usage())
        found = measure()
        after = environment.host_usage(self.workload.child_usage())
        before = environment.without_waits(before, waits)
        if spec.kind is Kind.TIMING:
            found |= self._usage_fields(spec, found, before, after)
            found |= _over_budget(found["peak_bytes"], spec.measure.memory_bytes)
            found |= self._energy_alone(spec, found, before, after)
        keys = {**environment.comparison_keys(self.device), "data": self.workload.data_digest()}
        loaded = {"gpus_under_load": list(map(dataclasses.asdict, found.pop("loaded", ())))}
        loaded["energy"] = found.pop("energy", {})
        facts = {**environment.facts(), "device": dataclasses.asdict(self.device), **loaded}
        return {"outcome": Outcome.OK, "setup_s": self.setup_s, "keys": keys, "environment": facts, **found}

    def _energy_alone(
        self, spec: TrialSpec, found: dict[str, Any], before: HostUsage, after: HostUsage
    ) -> dict[str, Any]:
        """What replaces an energy that others drew too."""
        if not (counted := found.get("energy")):
            return {}
        beside = (spec.beside - 1) * spec.measure.threads
        reason = energy.shared_by(before, after, counted["counters"], counted["source"], beside)
        return energy.shared(found["quantities"], reason) if reason else {}

    def _usage_fields(
        self, spec: TrialSpec, found: dict[str, Any], before: HostUsage, after: HostUsage
    ) -> dict[str, Any]:
        """What disturbed a timed region, and whether its CPU time tells what its wall time does."""
        usage, wall_ns, cpu_ns = found.pop("usage"), found["region_ns"], found["region_cpu_ns"]
        # Own workers and writers contend with it too, and no figure of the kernel tells them from others.
        # Threads that rest, such as those of a compiler, do not.
        resting = threading.active_count() == 1 or usage.others_rest(cpu_ns)
        elsewhere = self.workload.child_usage() is not None
        single = resting and not elsewhere and not multiprocessing.active_children()
        region = usage if single else None
        threads = spec.measure.threads if single and self.device.type == "cpu" else None
        if elsewhere:
            threads = max(1, round(cpu_ns / wall_ns))
        return {
            "disturbed": environment.disturbance(
                before, after, wall_ns, region, threads, found.get("loaded", ())
            ),
            "displaced": single and usage.displaced(wall_ns),
            "alone": not elsewhere and threads == 1 and spec.world == 1 and usage.alone(wall_ns, cpu_ns),
            "calibration_ns": self.calibration_ns,
            "run_delay_ns": usage.run_delay_ns,
            "minor_faults": usage.minor_faults,
            "major_faults": usage.major_faults,
            "system_ns": usage.system_ns,
        }


def _over_budget(peak_bytes: int, budget: int | None) -> dict[str, Any]:
    """What a trial that needed more memory than it may ends as; nothing where it kept to it.

    A GPU's allocator refuses by itself. Elsewhere the peak is looked at afterwards, so that the rehearsal of
    a small device works on any.
    """
    if budget is None or peak_bytes <= budget:
        return {}
    text = (
        f"peak memory of {peak_bytes / 2**30:.2f} GiB is over the {budget / 2**30:.2f} GiB of"
        " measure.memory_gib"
    )
    return {"outcome": Outcome.OOM, "failure": Failure(type="MemoryBudget", message=text)}


def _planned_workload(spec: TrialSpec) -> tuple[type[Workload], Any]:
    installed.refuse_others(spec.installed)
    cls, config = load_workload(spec.workload, spec.config)
    if code_digest(cls) != spec.code:
        raise ConfigError(
            "code_changed: the sources are not those the sweep was planned with; start the same command again"
        )
    return cls, config


@contextmanager
def set_up(spec: TrialSpec, folder: Path, rank: int) -> Iterator[Scene]:
    """The workload of a trial, ready for its first iteration, and closed afterwards whatever happens."""
    write_status(folder, "setting up")
    scratch.make(folder)
    cls, config = _planned_workload(spec)
    levels = cls.levels_of(spec.arm.levels)
    device = environment.device_facts()
    _refuse_unsupported(levels, device, spec.world // spec.beside)
    if spec.kind is Kind.TIMING:
        layout.shift_addresses(_layout_seed(spec))
        layout.keep_junk(spec.arm.placebo)
    _prepare_process(spec, device, rank, folder)
    calibration_ns = calibration.work_ns() if spec.kind is Kind.TIMING else None
    log = log_of(levels, spec, folder, rank)
    context = _context(spec, folder, device, rank, log)
    prepare_collector(cls, spec.arm.levels)
    workload = cls()
    shared = compile_cache.shared_folder(
        Path(spec.cache_dir), str(torch.__version__), device.name, spec.code + spec.installed
    )
    anew = any(level.compiles_anew for level in levels.values())
    draw = spec.server if any(level.autotunes for level in levels.values()) else None
    own = folder / "scratch" / f"compiled{rank}"
    with compile_cache.compile_cache(spec.kind, shared, own, anew, draw):
        start = time.perf_counter()
        try:
            workload.setup(config, spec.arm.levels, context)
            yield Scene(workload, device, log, time.perf_counter() - start, calibration_ns)
        finally:
            workload.close()
            log.close()


def _layout_seed(spec: TrialSpec) -> int:
    return layout.draw(spec.sweep, spec.pack, spec.server, spec.arm.id, spec.round, spec.attempt)


def _refuse_unsupported(levels: dict[str, Level], device: Device, nodes: int) -> None:
    everywhere = dataclasses.replace(device, count=device.count * nodes)
    reasons = [
        f"{name}={level.value}: {reason}"
        for name, level in levels.items()
        if (reason := level.unsupported(everywhere if level.ranks > 1 else device))
    ]
    if reasons:
        raise UnsupportedHere("; ".join(reasons))


def _prepare_process(spec: TrialSpec, device: Device, rank: int, folder: Path) -> None:
    """Seeds, threads and process group: the same start for every arm."""
    if device.type == "cpu":
        torch.set_num_threads(spec.measure.threads)
    elif (budget := spec.measure.memory_bytes) is not None and device.memory_bytes:
        share = min(1.0, budget / device.memory_bytes)
        # When CUDA is first used, and no sooner: a loader's workers may be forked before.
        torch.cuda._lazy_call(lambda: _limit_memory(share, device.count))
    random.seed(spec.seed)
    np.random.seed(spec.seed % 2**32)
    torch.manual_seed(spec.seed)
    process_group.join(device, process_group.Place.of(spec, rank), folder, spec.meet)


def _limit_memory(share: float, count: int) -> None:
    """Let this process have no more of each GPU: which of them a rank will use is the workload's choice."""
    for index in range(count):
        torch.cuda.set_per_process_memory_fraction(share, index)


def log_of(levels: dict[str, Level], spec: TrialSpec, folder: Path, rank: int) -> BufferedLog | LiveLog:
    """Choose where rows of metrics go: into memory, unless a level sends them from inside the loop."""
    intervals = [level.commit_every for level in levels.values() if level.commit_every]
    if not intervals or spec.kind in (Kind.EVIDENCE, Kind.COURSE, Kind.QUALITY) or rank > 0:
        return BufferedLog()
    return LiveLog(min(intervals), folder / "scratch")


def _context(spec: TrialSpec, folder: Path, device: Device, rank: int, log: BufferedLog | LiveLog) -> Context:
    own = folder / "scratch" / f"rank{rank}"
    own.mkdir(parents=True, exist_ok=True)
    cache = Path(spec.cache_dir)
    cache.mkdir(parents=True, exist_ok=True)
    place = process_group.Place.of(spec, rank)
    return Context(
        device=device,
        scratch_dir=own,
        cache_dir=cache,
        seed=spec.seed,
        rank=rank,
        world=spec.world,
        node=place.node,
        local_rank=place.local_rank,
        local_world=place.local_world,
        master=spec.meet.rpartition(":")[0] if spec.meet else "127.0.0.1",
        memory_budget=spec.measure.memory_bytes,
        log=log,
        deadline=time.monotonic() + spec.measure.timeout_s,
    )


def main(arguments: list[str]) -> int:
    """Run the trial of a spec.json, or stay for turns; the exit status says only if a record was written.

    One rank that fails ends with status 1, so that the others do not wait for it.
    """
    file = Path(arguments[0])
    rank = int(arguments[1]) if len(arguments) > 1 else 0
    spec = read_spec(file)
    if len(arguments) > 2:
        serve(spec, file.parent, rank, Connection(int(arguments[2])))
        return 0
    record = run(spec, file.parent, rank)
    return int(spec.world > 1 and record.failure is not None)


if __name__ == "__main__":
    die_with_parent()
    _status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_status)  # as a forked trial ends: threads that somebody's code has left do not hold it up
