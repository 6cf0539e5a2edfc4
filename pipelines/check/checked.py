"""One workload under the check: what is planned, its trials, and what they show of baseline and levels."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from perfsweep.pipelines.check import rules, trials
from perfsweep.pipelines.check.rules import Counters, Defect, Finding
from perfsweep.pipelines.config import validation
from perfsweep.pipelines.config.types import (
    DesignConfig,
    MeasureConfig,
    RunCommand,
    SweepCommand,
    SweepConfig,
)
from perfsweep.pipelines.execution.forks import ForkServer
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.execution.spawn import wait
from perfsweep.pipelines.locks import own_folder
from perfsweep.pipelines.parity.evidence import Agreement
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import (
    Arm,
    Effect,
    Kind,
    Manifest,
    Outcome,
    Pack,
    SweepFolder,
    TrialSpec,
    read_evidence,
    write_spec,
)
from perfsweep.pipelines.trial.machine import environment
from perfsweep.workloads.api import Device, Evidence, LevelValue, Parity
from perfsweep.workloads.errors import ConfigError, RecordError
from perfsweep.workloads.user_environment import changed

LATE = "did not end within"
"""How a trial is told that needed more time than it had: a slow compiler is no defect."""


ITERATIONS = 12
"""Of an evidence trial: enough for a mistake to show, and to let a workload's first epoch end."""


@dataclass(frozen=True)
class _Observed:
    """What the support trials of an arm gave, None where one failed or was unsupported."""

    evidence: Evidence | None
    counters: Counters | None
    data: str
    folder: Path


class Checked:
    """One workload under the check.

    Attributes
    ----------
    device : where it is checked
    left_out : arms that cannot act here, cannot be judged by one seed, or need more time, with the reason
    choices : levels whose class their author chose, and how a sweep will report them
    held : levels that were compared with their base, as toggle=level
    trials : the trials that were run
    tell : called with what is being done, to show progress
    """

    def __init__(self, command: RunCommand, folder: Path, device: Device, planned: Manifest) -> None:
        self.name = str(command.workload["name"])
        self.manifest = planned
        self.left_out: dict[str, str] = {}
        self.choices: dict[str, str] = {}
        self.held, self.trials = list[str](), 0
        self._runs_folder, self._failed_log = Path(command.runs), ""
        self.tell: Callable[[str], None] = lambda text: None
        self._repeats = True
        self._folder, self.device = folder, device
        self._cls, _ = plan.load_workload(command.workload)
        sweep = self._started(folder / "check")
        self._runs = [PackRun(sweep, self.manifest, pack) for pack in self.manifest.packs]
        self._reference = self.manifest.arm(next(iter(self.manifest.sweep.references.values())))
        self._observed: dict[str, _Observed] = {}

    @property
    def compared(self) -> int:
        """How many levels were held against their base."""
        return len(self.held)

    @property
    def trials_ahead(self) -> int:
        """Trials that a sound workload takes: two of each arm, and repeats of the baseline."""
        return 2 * len(self.manifest.arms) + 3 + (self._cls.shape == "steps")

    def keep_log(self) -> Path | None:
        """Keep the log of the last trial that failed, with its traceback, where the user finds it."""
        if not self._failed_log:
            return None
        folder = self._runs_folder / f"check-{re.sub(r'[^A-Za-z0-9._-]+', '-', self.name)}"
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "log.txt", self._failed_log.encode())
        return folder / "log.txt"

    def findings(self) -> Iterator[Finding]:
        """Defects, those first that make others meaningless."""
        failed = list(self._observe(self._reference))
        if self._observed[self._reference.id].evidence is None:
            why = self.left_out.get(self._reference.label, "")
            if why.startswith(LATE):
                raise ConfigError(f"{self.name}: the baseline {why}")
            yield from failed or [
                Finding(Defect.FAILS, f"{self.name}, baseline", f"it cannot act here: {why}")
            ]
            return
        yield from failed
        yield from self._of_the_baseline()
        yield from self.of_levels()
        arms = [one.counters for one in self._observed.values()]
        yield from rules.host_reads(
            self.name, self._probed["reads"], self._observed[self._reference.id].counters, arms
        )

    def of_levels(self) -> Iterator[Finding]:
        """Defects of the levels alone: each against its base, and nothing about the baseline itself."""
        for arm in self.manifest.arms:
            if arm.id not in self._observed:
                yield from self._observe(arm)
        for effect in self.manifest.effects:
            yield from self._of_a_level(effect)

    def counters_of(self, toggle: str, value: Any) -> Counters:
        """What was counted of the first arm with this level; empty where nothing could be."""
        arms = (arm for arm in self.manifest.arms if arm.levels[toggle] == value)
        observed = [self._observed[arm.id].counters for arm in arms if arm.id in self._observed]
        return (observed[0] if observed else None) or {}

    def _started(self, path: Path) -> SweepFolder:
        folder = SweepFolder(path)
        path.mkdir(parents=True)
        folder.write_manifest(self.manifest)
        return folder

    def _run_of(self, arm: Arm) -> PackRun:
        return next(run for run in self._runs if arm.id in run.pack.arms)

    def _observe(self, arm: Arm) -> Iterator[Finding]:
        """Evidence and counters of an arm; a finding if one of them fails."""
        run, found = self._run_of(arm), {}
        for kind in (Kind.EVIDENCE, Kind.COUNTING):
            self.tell(f"{arm.label}: {kind.value} trial")
            found[kind] = self._tried(run, arm, kind)
            if found[kind].record.outcome is Outcome.UNSUPPORTED:
                self.left_out[arm.label] = _why(found[kind])
                break
            if found[kind].record.outcome is Outcome.TIMEOUT:
                self.left_out[arm.label] = _late(self.manifest.sweep.measure)
                break
            if found[kind].record.outcome is not Outcome.OK:
                yield self._failure(f"{arm.label}, {kind.value} trial", found[kind])
                break
        counting = found.get(Kind.COUNTING)
        counters = counting.record.counters if counting and counting.record.outcome is Outcome.OK else None
        if counting and arm == self._reference:
            run.share_imports(counting.folder)
        shown = found[Kind.EVIDENCE]
        self._observed[arm.id] = _Observed(
            _evidence(shown), counters, shown.record.keys.get("data", ""), shown.folder
        )

    def _tried(self, run: PackRun, arm: Arm, kind: Kind) -> StoredTrial:
        found = run.again(arm, kind)
        self.trials += 1
        return found

    def _failure(self, what: str, found: StoredTrial) -> Finding:
        """A trial that failed; its log is kept, since the folder of a check goes."""
        self._failed_log = (found.folder / "log.txt").read_text(errors="replace")
        return Finding(Defect.FAILS, f"{self.name}, {what}", _where(found))

    def _of_the_baseline(self) -> Iterator[Finding]:
        checks, first = self._cls.checks, self._observed[self._reference.id].evidence
        if first is None:
            return
        self.tell("baseline: does it repeat, and leak no state?")
        timing = self._tried(self._run_of(self._reference), self._reference, Kind.TIMING)
        if timing.record.outcome is not Outcome.OK:
            yield self._failure("timing trial", timing)
        # A record is written once, and says how long its evidence is.
        (self._observed[self._reference.id].folder / "record.json").unlink(missing_ok=True)
        cached = self._evidence_again(self._run_of(self._reference))
        elsewhere = self._elsewhere("fresh")
        fresh = self._evidence_again(elsewhere)
        # After a single iteration, on what set-up has left there.
        early = [self._evidence_again(elsewhere.iterating(1))] if self._cls.shape == "steps" else []
        yield from rules.no_evidence(self.name, checks, first, early[0] if early else None)
        if early and rules.difference(first, fresh, checks) is not None:
            early.append(self._evidence_again(self._elsewhere("early").iterating(1)))
        unlike = rules.not_repeatable(self.name, checks, [first, cached, fresh], early)
        self._repeats = not unlike  # two arms of something that does not repeat always differ
        yield from unlike
        leaks = [
            leak for leak in self._probed["leaks"] if self._repeats or not leak.startswith(trials.ELSEWHERE)
        ]
        yield from rules.state_leaks(self.name, leaks)

    def _elsewhere(self, name: str) -> PackRun:
        """A pack with servers and a cache folder of its own."""
        folder = self._started(self._folder / name)
        return PackRun(folder, self.manifest, self._run_of(self._reference).pack)

    def _evidence_again(self, run: PackRun) -> Evidence:
        found = self._tried(run, self._reference, Kind.EVIDENCE)
        evidence = _evidence(found)
        if evidence is None:
            raise RecordError(f"{self.name}: the same trial succeeded before and now fails: {_where(found)}")
        (found.folder / "record.json").unlink(missing_ok=True)  # of the next one there
        return evidence

    @property
    def _probed(self) -> dict[str, list[str]]:
        """What a process of its own found: leaks and reads."""
        folder = self._folder / "probe"
        answer = folder / "answer.json"
        if not answer.exists():
            arm = self._reference
            spec = self.manifest.sweep.trial_spec(arm, Kind.EVIDENCE, "probe", folder / "cache")
            _probe(spec, folder, answer, self._cls.__module__)
        return json.loads(answer.read_text())

    def _of_a_level(self, effect: Effect) -> Iterator[Finding]:
        arm_id, base_id = effect.pairs[0]
        arm, base = self._observed.get(arm_id), self._observed.get(base_id)
        if arm is None or base is None or arm.evidence is None or base.evidence is None:
            return
        subject = f"{effect.toggle}={effect.level}"
        self.held.append(subject)
        one, other = self.manifest.arm(arm_id), self.manifest.arm(base_id)
        agreement = Agreement(self.manifest, self._run_of(one).progress, read_evidence)
        level = self._cls.levels_of(one.levels)[effect.toggle]
        same = not rules.differ(base.evidence, arm.evidence)
        still = rules.nothing_changes(level, subject, base.counters, arm.counters, same)
        if still and self._acts_elsewhere(effect, one, other, base.counters):
            self.choices[subject] = (
                "does the same as its base under this configuration, and something else as another number; a"
                " sweep says that it has no effect"
            )
        else:
            yield from still
        yield from rules.data_change(subject, base.data, arm.data)
        result = agreement.judged(base.evidence, arm.evidence, one, other)
        if result.parity_class is Parity.STOCHASTIC:
            self.left_out[subject] = (
                "draws at random, so whether it is equivalent takes several seeds: a sweep runs them"
            )
        if other_form := rules.other_form(base.evidence, arm.evidence, self._cls.checks):
            self.choices[subject] = other_form
        elif self._repeats:
            yield from rules.results_change(subject, result)

    def _acts_elsewhere(self, effect: Effect, one: Arm, base: Arm, counted: Counters | None) -> bool:
        """Whether another number of the toggle moves what this one leaves: such a level is a choice."""
        toggle = next(toggle for toggle in self._cls.toggles if toggle.name == effect.toggle)
        value = one.levels[effect.toggle]
        if toggle.numbers is None or isinstance(value, str):
            return False
        taken = (value, base.levels[effect.toggle])
        tries = (value // 2, value * 2, value + 1)
        number = next((n for n in tries if n not in taken and toggle.numbers.holds(n)), None)
        if number is None:
            return False
        levels = {**one.levels, effect.toggle: number}
        arm = dataclasses.replace(one, id=f"{one.id[:-1]}x", label=f"{one.label} ({number})", levels=levels)
        self.tell(f"{effect.toggle}={number}: counting trial")
        found = self._tried(self._run_of(one), arm, Kind.COUNTING).record
        level = self._cls.levels_of(levels)[effect.toggle]
        moved = not rules.nothing_changes(level, "", counted, found.counters, True)
        return found.outcome is Outcome.OK and moved


def plan_check(
    command: RunCommand,
    device: Device,
    given: Iterable[str] = (),
    toggles: Sequence[str] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
) -> Manifest:
    """Every level against its base, each arm once; arms that need their own process in their own pack."""
    measure = MeasureConfig(
        rounds=1,
        iterations=4,
        warmup_max=6,
        evidence_iterations=ITERATIONS,
        counting_iterations=4,
        timeout_s=120,
        repeats=0,
    )
    names = {one.name for one in dataclasses.fields(MeasureConfig)} & {*given} - {"rounds"}
    measure = dataclasses.replace(measure, **{name: getattr(command.measure, name) for name in names})
    asked = {name: list(values) for name, values in (levels or {}).items()}
    design = DesignConfig("one_at_a_time", toggles=list(toggles) if toggles else None, levels=asked)
    sweep = SweepConfig(name="check", designs=[design])
    whole = SweepCommand(
        workload=command.workload, toggles=command.toggles, measure=measure, sweep=sweep, name="check"
    )
    whole.cluster.arms_per_pack = 10**6
    cls, _ = plan.load_workload(command.workload)
    if not cls.toggles:
        return plan.single_arm(whole, device)
    manifest = plan.make_plan(whole, device)
    groups: dict[str, list[str]] = {}
    for arm in manifest.arms:
        groups.setdefault("exec" if cls.needs_exec(arm.levels) else "fork", []).append(arm.id)
    packs = [
        Pack(id=f"p{number:03d}", orders=(tuple(arms),), start=start)
        for number, (start, arms) in enumerate(groups.items())
    ]
    return manifest.model_copy(update={"packs": tuple(packs)})


@contextmanager
def checking(
    cfg: DictConfig,
    values: Sequence[str] = (),
    toggles: Sequence[str] | None = None,
    levels: Mapping[str, Sequence[LevelValue]] | None = None,
) -> Iterator[Checked]:
    """A workload that is about to be checked, in a folder that goes afterwards.

    Parameters
    ----------
    values : the words that were composed: fields of `measure` in them hold instead of a check's own
    toggles, levels : only these; None: all

    Raises
    ------
    ConfigError
        A value, a toggle or a level does not exist.
    """
    command: RunCommand = validation.typed(cfg, RunCommand)
    given = {
        text.partition("=")[0].removeprefix("measure.") for text in values if text.startswith("measure.")
    }
    device = environment.device_facts()
    planned = plan_check(command, device, given, toggles, levels)
    # Trials end without tidying up: Python's tracker would complain of torch's compiler's leftovers.
    if "PYTHONWARNINGS" not in os.environ:
        quiet = {"PYTHONWARNINGS": "ignore:resource_tracker:UserWarning"}
        os.environ.update(changed(os.environ, quiet))
    with own_folder(Path(tempfile.gettempdir()), "perfsweep-check-") as folder:
        yield Checked(command, folder, device, planned)


def _probe(spec: TrialSpec, folder: Path, answer: Path, module: str) -> None:
    """Look at several lives in one process; one that breaks is a leak, since fresh processes do not."""
    file = write_spec(folder, spec)
    child = ForkServer([module]).call(trials.forked, str(file), str(answer))
    ending = wait([child], spec.measure.timeout_s * 3)
    if ending is not None or not answer.exists():
        lines = (folder / "log.txt").read_text(errors="replace").strip().splitlines() or [str(ending)]
        answer.write_text(
            json.dumps(
                {"leaks": [f"a process that sets it up several times breaks: {lines[-1]}"], "reads": []}
            )
        )


def _evidence(found: StoredTrial) -> Evidence | None:
    return read_evidence(found.folder) if found.record.outcome is Outcome.OK else None


def _late(measure: MeasureConfig) -> str:
    longer = f"measure.timeout_s={measure.timeout_s * 5:g}"
    return f"{LATE} {measure.timeout_s:g} s (measure.timeout_s); give it more with {longer}"


def _why(found: StoredTrial) -> str:
    return found.record.failure.message if found.record.failure else found.record.outcome.value


def _where(found: StoredTrial) -> str:
    """What a trial raised, with the last line of the user's own code that it passed."""
    failure = found.record.failure
    if failure is None:
        return f"it ended as {found.record.outcome.value}"
    return f"{failure.type}: {failure.message}" + (f" ({failure.where})" if failure.where else "")
