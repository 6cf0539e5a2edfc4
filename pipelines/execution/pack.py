"""One allocation: counting and evidence for each arm, then generations of timing trials that take turns.

Run as ``python -m perfsweep.pipelines.execution.pack <sweep folder> <pack>``. On SIGTERM, SIGINT and SIGUSR2
it ends the running trial and then itself. Finished rounds are kept. When the pack is started again, it
continues with the first unfinished round as a new, numbered attempt.
"""

from __future__ import annotations

import copy
import math
import os
import random
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from perfsweep.pipelines.execution.allotment import Unfit, refuse_unfit
from perfsweep.pipelines.execution.endings import record_of
from perfsweep.pipelines.execution.generation import MEMORY_SHARE, Begun, Generation, Trial
from perfsweep.pipelines.execution.idle_watch import idle_power
from perfsweep.pipelines.execution.missing_trials import ONCE
from perfsweep.pipelines.execution.nodes import OtherNodes
from perfsweep.pipelines.execution.servers import Servers
from perfsweep.pipelines.execution.spawn import (
    Interrupted,
    ServerLost,
    Starter,
    end,
    fix_imports,
    listen_for_signals,
    signal_heard,
    stop_if_interrupted,
    wait,
)
from perfsweep.pipelines.parity.evidence import Agreement
from perfsweep.pipelines.publish.publishing import Feeder
from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.needed_once import IdlePower, arms_without, kept_folder, untrained, write_idle
from perfsweep.pipelines.store.planned import declared_workload
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import (
    Arm,
    Event,
    Kind,
    Manifest,
    Outcome,
    Pack,
    SweepFolder,
    TrialRecord,
    TrialSpec,
    read_evidence,
    replay_dir,
    shed,
    write_spec,
)
from perfsweep.pipelines.store.trial_schema import LOOP_BY_REGION
from perfsweep.pipelines.store.writers import Superseded, at_work, claim, stop_if_superseded
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.trial.shared_imports import noted
from perfsweep.pipelines.versions import tree
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.local import Allocation
from perfsweep.workloads.api import Declaration
from perfsweep.workloads.errors import RecordError
from perfsweep.workloads.snapshot import VARIABLE

TRY_AGAIN, STUCK, CANNOT_WRITE, SUPERSEDED, NO_NODE, CANNOT_READ = 75, 79, 74, 76, 69, 66
"""Exit status of a pack: a signal ended it after or before it had finished anything, its folder cannot be
written (see sysexits), a later attempt has replaced it, a node of its allocation is missing, its plan cannot
be read; see also `element.UNFIT`."""

MOST_ITERATIONS = 20_000
"""Of a region whose length is given in seconds: each iteration is stored, so there is a limit."""

RESULT_S = 7 * 86400.0
"""Limit of result trials, which run to their end: long, as Slurm has its own limit."""


class PackRun:
    """The trials of one pack, one after the other."""

    def __init__(
        self, folder: SweepFolder, manifest: Manifest, pack: Pack, retry: frozenset[Outcome] = frozenset()
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self.pack = pack
        self.retry = retry
        self._device = environment.device_facts()
        refuse_unfit(self._device, folder.pack_dir(pack.id) / "log.txt")  # first: another node may be fit
        self.attempt = claim(folder, pack)  # from here on an earlier copy starts no more trials
        fix_imports(manifest.sweep.import_paths)
        # Servers start only here: they import torch while this process does, which nothing above may import.
        env = code_snapshot.sources_env(folder.code_dir, manifest.sweep.code)
        sweep = manifest.sweep
        self._nodes = (
            OtherNodes(Allocation.of(sweep.nodes), sweep.ranks_per_node) if sweep.nodes > 1 else None
        )
        versions = [*map(self._version_env, self._arms())]
        elsewhere = self._nodes and self._nodes.start
        self._servers = Servers(sweep, pack, env, elsewhere, versions)
        self._feeder = Feeder(folder, manifest, pack.id)
        self.progress = self._read_progress()
        self.advanced = False  # whether this attempt finished a round, or a trial that is needed once
        self._reference = next(iter(manifest.sweep.references.values()))
        self._idle: IdlePower | None = None
        self._rare: dict[str, tuple[int, ...]] = {}  # slow places in the first warm-up of each arm

    def _read_progress(self) -> Progress:
        return read_progress(self.folder, self.manifest, environment.comparison_keys(self._device))

    def run(self) -> None:
        """Run the missing trials first, then repeat disturbed rounds, as far as their budget allows."""
        reference_first = sorted(self.pack.arms, key=lambda arm: arm != self._reference)
        for arm_id in reference_first:  # others replay its iterations
            for kind in ONCE:
                self.support(self.manifest.arm(arm_id), kind)
                if (one := (arm_id, kind)) == (self._reference, Kind.COUNTING) and one in self.progress.other:
                    self.share_imports(self.progress.other[one].folder)
            if self._compiles(arm_id):
                self._servers.learn(self.folder.cache_dir)
        self._seeds()
        self._results()
        tried: set[int] = set()
        while (number := self._next(tried)) is not None:
            self._rest()
            tried.add(number)
            self._generation(number)
            self._forget(number)
            self._feeder.between_rounds()
        self._trainings()
        if self.manifest.sweep.measure.timed_parity:
            self._courses()

    def share_imports(self, counted: Path) -> None:
        """Have servers import what every trial would: what the baseline's trial in `counted` noted."""
        versions = {env[VARIABLE] for env in map(self._version_env, self._arms()) if VARIABLE in env}
        self._servers.share(noted(counted, map(Path, versions)))

    def _forget(self, number: int) -> None:
        """Drop the records of a round from memory when they are not needed: rounds may be thousands."""
        if not (self.retry or self.manifest.sweep.measure.adaptive):
            self.progress.forget(self.pack, number)

    def _rest(self) -> None:
        """Measure the machine at rest, once: how often its counters change, and its idle power."""
        if self._idle is None:
            self._idle = idle_power(self._device)
            write_idle(self.folder, self.pack.id, self._idle)

    def _next(self, tried: set[int]) -> int | None:
        """The next round: an unfinished one that was not tried yet, or that may be repeated."""
        unfinished = self.progress.unfinished_rounds(self.pack, self.retry)
        repeats = self.progress.to_repeat(self.pack)
        return next((number for number in unfinished if number not in tried or number in repeats), None)

    def single(self) -> StoredTrial:
        """Measure the only arm of the pack once more, even if it has records."""
        return self.again(self.manifest.arms[0], Kind.TIMING)

    def again(self, arm: Arm, kind: Kind) -> StoredTrial:
        """Run a trial of any kind, even if it has a record."""
        self._servers.complete()
        return self._trial(arm, kind, 0 if kind is Kind.TIMING else None)

    def iterating(self, iterations: int) -> PackRun:
        """The same servers and folder, where evidence is of so many iterations."""
        measure = replace(self.manifest.sweep.measure, evidence_iterations=iterations)
        sweep = self.manifest.sweep.model_copy(update={"measure": measure})
        other = copy.copy(self)
        other.manifest = self.manifest.model_copy(update={"sweep": sweep})
        return other

    def support(self, arm: Arm, kind: Kind, replicate: int = 0) -> None:
        """Run an untimed trial if it is missing: one for each arm, and for each seed of stochastic levels."""
        if self.progress.lacks(self.pack.id, arm.id, kind, replicate, self.retry):
            self._trial(arm, kind, None, replicate)
            self.advanced = True

    def _seeds(self) -> None:
        """Run paired seeds of stochastic arms until equivalence is decided or all seeds are used."""
        agreement = Agreement(self.manifest, self.progress, read_evidence)
        done: set[tuple[str, int]] = set()
        while left := [one for one in agreement.replicates_wanted(self.pack) if one not in done]:
            self._untimed(
                Kind.EVIDENCE,
                (
                    (arm, offset, {})
                    for arm, offset in left
                    if self.progress.lacks(self.pack.id, arm, Kind.EVIDENCE, offset, self.retry)
                ),
            )
            done.update(left)

    def _results(self) -> None:
        """Save the results of every arm that can run, where `keep` is set."""
        for arm in arms_without(self.manifest, self.progress, self.retry):
            if arm.id in self.pack.arms:
                self._trial(arm, Kind.RESULT, None)
                self.advanced = True

    def _courses(self) -> None:
        """Run course trials, whose numbers are compared with those of timing trials, at the same steps."""
        self.progress = self._read_progress()  # `_forget` has dropped rounds that are needed here
        agreement = Agreement(self.manifest, self.progress, read_evidence)
        done: set[object] = set()
        while left := [one for one in agreement.courses_wanted(self.pack, self.retry) if one not in done]:
            self._untimed(Kind.COURSE, ((one.arm, one.seed, {"numbers_at": one.at}) for one in left))
            done.update(left)
            self.attempt = claim(self.folder, self.pack)  # a repeated trial needs its own folder

    def _untimed(self, kind: Kind, asked: Iterable[tuple[str, int, dict[str, Any]]]) -> None:
        """Run trials whose times do not count, as many at once as cores and memory allow.

        Each is asked for by its arm, its seed, and further fields of its spec.
        """
        left = [*asked]
        while left:
            some = left[: self._at_once()]
            del left[: len(some)]
            begun: list[Begun] = []
            try:
                begun += (
                    self._begin(self.manifest.arm(arm), kind, None, seed, **own) for arm, seed, own in some
                )
                for one in begun:
                    self._finish(one)
                    self.advanced = True
            except BaseException:
                end([child for one in begun for child in one.children if child.code() is None])
                raise

    def _at_once(self) -> int:
        """How many trials without times may run at once: one where they need a device, or start by exec."""
        if self.pack.start == "exec" or self._device.type != "cpu":
            return 1
        taken = [trial.record.peak_bytes or 0 for trial in self.progress.other.values()]
        room = MEMORY_SHARE * self._device.memory_bytes / max(1, *taken)
        cores = len(os.sched_getaffinity(0)) // self.manifest.sweep.measure.threads
        return max(1, min(cores, int(room)) if self._device.memory_bytes else 1)

    def _trainings(self) -> None:
        """Train every arm to the target, if there is one, with every seed: seed by seed, arm by arm."""
        for arm, seed in untrained(self.manifest, self.progress, self.pack, self.retry):
            if not self.progress.retired(self.pack.id, [arm]):
                self._trial(self.manifest.arm(arm), Kind.QUALITY, None, seed)
                self.advanced = True

    def _renew_attempt(self, number: int) -> None:
        """Take a new attempt number if this attempt has measured the round already."""
        if self.attempt in self.progress.timing.get((self.pack.id, number), {}):
            stop_if_superseded(self.folder, self.pack.id, self.attempt)
            self.attempt = claim(self.folder, self.pack)

    def _generation(self, number: int) -> None:
        """A round: start every arm and let them take turns, then measure arms that cannot take turns."""
        measure = self.manifest.sweep.measure
        self._renew_attempt(number)
        retired = self.progress.retired(self.pack.id, self.pack.arms)
        arms = [arm for arm in self.progress.measured(self.pack, number) if arm not in retired or self.retry]
        began = time.monotonic()
        self._servers.begin_round()
        limits = self._device.memory_bytes, measure.timeout_s, measure.turn_s
        with Generation(*limits, began, at_work(self.folder, self.pack.id)) as generation:
            for arm in arms:
                self._stop_if_asked()
                generation.start(self._timing(arm, number), self._starter_of(arm, Kind.TIMING))
            self._rare = {**generation.rare, **self._rare}
            for trial, record in generation.run(random.Random(), self._servers):
                self._note(StoredTrial(trial.folder, record))
                self._stop_if_asked()
        for trial, why in generation.alone:
            print(f"{trial.spec.arm.label}: {why}; it is measured by itself", flush=True)
            self._servers.rest_ahead()
            self._trial(self.manifest.arm(trial.spec.arm.id), Kind.TIMING, number)
        self.advanced = True

    def _timing(self, arm_id: str, number: int) -> Trial:
        spec, env = self._spec(self.manifest.arm(arm_id), Kind.TIMING, number)
        return Trial(spec, self.folder.trial_dir(spec), env)

    def _starter_of(self, arm_id: str, kind: Kind) -> Starter:
        """The server that starts a trial: one with the compiler, if the counting trial of the arm compiled.

        Not for evidence trials, which show the cost in a process that only finds compiled code on disk. Not
        on a GPU either: there the compiler uses the driver, which a process that forks must not use.
        """
        learned = kind not in ONCE and self._compiles(arm_id)
        return self._servers.starter_of(self.folder.cache_dir if learned else None)

    def _compiles(self, arm_id: str) -> bool:
        counted = self.progress.other.get((arm_id, Kind.COUNTING))
        compiled = counted is not None and (counted.record.counters.get("compile_s") or 0.0) > 0
        return compiled and self._device.type == "cpu"

    @cached_property
    def _cls(self) -> type[Declaration]:
        """What the workload declares; the class of a user imports torch: not while the server does so."""
        return declared_workload(self.manifest.sweep.workload, self.manifest.sweep.config)[0]

    def _spec(
        self, arm: Arm, kind: Kind, number: int | None, replicate: int = 0, **own: Any
    ) -> tuple[TrialSpec, dict[str, str]]:
        """Build a trial's spec, and the variables its levels need."""
        own |= {"round": number, "attempt": self.attempt, "replicate": replicate}
        if kind is Kind.RESULT:
            own["keep"] = kept_folder(self.manifest, arm)
            own["measure"] = replace(self.manifest.sweep.measure, timeout_s=RESULT_S)
        if kind is Kind.TIMING:
            own |= {"server": self._servers.seed, "iterations": self._iterations}
            own["rare"] = self._rare.get(arm.id)
            own["cadence"] = self.progress.cadence_of(arm.id, self._reference)
            own["counter_s"] = self._idle.step_s if self._idle else None
        world, env = self._process_of(arm)
        if world > 1 and self._nodes is not None:
            own |= {"ranks_per_node": self.manifest.sweep.ranks_per_node(world)}
            own |= {"meet": self._nodes.meeting_point()}
        place = self.pack.id, self.folder.cache_dir
        return self.manifest.sweep.trial_spec(arm, kind, *place, world=world, **own), env

    @property
    def _iterations(self) -> int | None:
        """Iterations that last `measure.region_s` by the baseline's evidence; None where it has none.

        Fewer if the evidence trial reached the end of a short loop.
        """
        measure = self.manifest.sweep.measure
        evidence = self.progress.other.get((self._reference, Kind.EVIDENCE))
        if measure.iterations is not None or evidence is None or not evidence.record.iteration_ns:
            return None
        wanted = math.ceil(measure.region_s * 1e9 / evidence.record.iteration_ns)
        loop = evidence.record.quantities.get("length", math.inf)
        return max(1, int(min(wanted, MOST_ITERATIONS, loop // LOOP_BY_REGION)))

    def _process_of(self, arm: Arm) -> tuple[int, dict[str, str]]:
        """Number of an arm's processes, and the variables they start with."""
        version = self._version_env(arm)
        if self.pack.start == "fork":  # planned for one process and no variables
            return 1, version
        own = self.manifest.sweep.workload_levels(arm)
        levels = self._cls.levels_of(own).values()
        env = {name: value for level in levels for name, value in level.env.items()}
        everywhere = replace(self._device, count=self._device.count * self.manifest.sweep.nodes)
        return self._cls.processes(own, everywhere), {**env, **version}

    def _arms(self) -> list[Arm]:
        return [*map(self.manifest.arm, self.pack.arms)]

    def _version_env(self, arm: Arm) -> dict[str, str]:
        """The variables by which an arm's trials find code and environment, where arms differ by them."""
        version = self.manifest.sweep.version_of(arm)
        if version is None:
            return {}
        code = self.folder.code_dir
        sources = code_snapshot.sources_env(code, version.sources) if version.sources else {}
        if version.environment is None:
            return sources
        path = os.environ["PYTHONPATH"].split(os.pathsep)  # as `fix_imports` left it
        return {**sources, **tree.variables(version.environment, code, path)}

    def _trial(self, arm: Arm, kind: Kind, number: int | None, replicate: int = 0, **own: Any) -> StoredTrial:
        return self._finish(self._begin(arm, kind, number, replicate, **own))

    def _begin(self, arm: Arm, kind: Kind, number: int | None, replicate: int = 0, **own: Any) -> Begun:
        self._stop_if_asked()
        spec, env = self._spec(arm, kind, number, replicate, **own)
        folder = self.folder.trial_dir(spec)
        if kind is Kind.EVIDENCE and not replicate:
            spec = replace(spec, replay=self._states(arm, folder))
        began = time.monotonic()
        children = self._starter_of(arm.id, kind).start(write_spec(folder, spec), spec.world, env)
        return Begun(spec, folder, began, children)

    def _finish(self, begun: Begun) -> StoredTrial:
        """Wait for a trial's end; returns its record, and writes one if the trial could not."""
        ended = wait(begun.children, begun.spec.measure.timeout_s)
        record = record_of(begun.spec, begun.folder, begun.began, ended)
        return self._note(StoredTrial(begun.folder, record))

    def _stop_if_asked(self) -> None:
        """Raise if a signal or a later attempt has asked this attempt to end."""
        stop_if_interrupted()
        stop_if_superseded(self.folder, self.pack.id, self.attempt)

    def _states(self, arm: Arm, folder: Path) -> str | None:
        """Where the baseline keeps the states that evidence trials replay; None where it cannot."""
        if arm.id == self._reference:
            return str(replay_dir(folder))
        reference = self.progress.other.get((self._reference, Kind.EVIDENCE))
        return str(replay_dir(reference.folder)) if reference else None

    def _note(self, found: StoredTrial) -> StoredTrial:
        record = found.record
        self.progress.add(replace(found, record=replace(record, environment={})))  # saves memory
        shed(found.folder, record)
        event = Event(
            time=time.time(),
            arm=record.arm,
            kind=record.kind,
            round=record.round,
            outcome=record.outcome,
            seconds=record.ended - record.started,
            reason=_reason(record),
            final=record.failure is not None and record.failure.is_final,
        )
        self.folder.append_event(self.pack.id, event)
        return found


def _reason(record: TrialRecord) -> str:
    if record.failure is None:
        return ""
    ours = record.outcome in (Outcome.UNSUPPORTED, Outcome.TIMEOUT)
    return record.failure.message if ours else record.failure.text


def main(arguments: list[str]) -> int:
    """Run a pack; status 0 when it is finished."""
    folder = SweepFolder(arguments[0])
    retry = frozenset(Outcome(word) for word in arguments[2:])
    run = None
    try:
        listen_for_signals()
        manifest = folder.read_manifest()
        run = PackRun(folder, manifest, manifest.pack(arguments[1]), retry)
        run.run()
    except (Interrupted, ServerLost) as reason:
        return _stopped(signal_heard() or str(reason), run is not None and run.advanced)
    except Superseded as reason:
        print(reason, flush=True)
        return SUPERSEDED
    except RecordError as reason:
        print(f"{reason}; start the sweep again, which fixes that", flush=True)
        return CANNOT_READ
    except ClusterError as reason:
        print(f"{reason}; finished rounds are kept: start the sweep again to continue", flush=True)
        return reason.status if isinstance(reason, Unfit) else NO_NODE
    except OSError as error:
        print(
            f"{error.filename or folder.path}: {error.strerror}; finished rounds are kept: fix this and"
            " start the sweep again",
            flush=True,
        )
        return CANNOT_WRITE
    return 0


def _stopped(reason: str, advanced: bool) -> int:
    """Print that a pack has ended early; returns its exit status."""
    where = (
        "stopped after the last finished round; a requeue, or the same command, continues"
        if advanced
        else "stopped before a round was finished; the same command begins it again"
    )
    print(f"{reason}: {where}", flush=True)
    return TRY_AGAIN if advanced else STUCK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
