"""`perfsweep check`: run a workload briefly, every level once, and say which rules it breaks."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from pipelines.check import rules, trials
from pipelines.check.rules import Counters, Defect, Finding
from pipelines.config import validation
from pipelines.config.types import DesignConfig, MeasureConfig, RunCommand, SweepCommand, SweepConfig
from pipelines.execution.pack import PackRun
from pipelines.execution.spawn import ForkServer, wait
from pipelines.parity.evidence import Agreement
from pipelines.plan import plan
from pipelines.store.progress import StoredTrial
from pipelines.store.records import (
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
from pipelines.terminal import console_here
from pipelines.trial import environment
from workloads.api import Device, Evidence, Parity
from workloads.errors import RecordError
from workloads.user_environment import changed

CLEAN, DEFECTIVE = 0, 1

ITERATIONS = 12
"""Of an evidence trial: enough for a mistake to show, and to let a workload's first epoch end."""


def check(cfg: DictConfig) -> int:
    """Run the workload, print what is wrong with it, and return 1 if something is."""
    command: RunCommand = validation.typed(cfg, RunCommand)
    console = console_here()
    device = environment.device_facts()
    # Trials end without tidying up: Python's tracker would complain of torch's compiler's leftovers.
    if "PYTHONWARNINGS" not in os.environ:
        quiet = {"PYTHONWARNINGS": "ignore:resource_tracker:UserWarning"}
        os.environ.update(changed(os.environ, quiet))
    with tempfile.TemporaryDirectory(prefix="perfsweep-check-") as folder:
        checked = Checked(command, Path(folder), device)
        console.print(
            f"checking {checked.name}: {len(checked.manifest.arms)} arms on {device.name or device.type}",
            highlight=False,
        )
        findings = []
        with console.status(checked.doing) if console.is_terminal else nullcontext() as shown:
            checked.tell = shown.update if shown else checked.tell
            for finding in checked.findings():
                console.print(f"\n[bold red]{finding.defect.value}[/]: {finding.subject}", highlight=False)
                console.print(finding.text, highlight=False, markup=False)
                findings.append(finding)
        _conclude(console, checked, findings)
    return DEFECTIVE if findings else CLEAN


def _conclude(console: Console, checked: Checked, findings: list[Finding]) -> None:
    console.print("")
    for refused in checked.manifest.refused:
        console.print(
            f"not checked: {refused.toggle}={refused.level}: {refused.reason}", style="dim", highlight=False
        )
    for label, reason in checked.left_out.items():
        console.print(f"not checked: {label}: {reason}", style="dim", highlight=False)
    if findings:
        console.print(
            f"{len(findings)} {'defects' if len(findings) > 1 else 'defect'} in {checked.name}",
            style="red",
            highlight=False,
        )
        return
    console.print(
        f"no defects: {checked.name} repeats, shows what it computes, leaves nothing behind, reads nothing it"
        f" waits for, and {checked.compared} levels act and keep to their class",
        style="green",
        highlight=False,
    )


@dataclass(frozen=True)
class _Observed:
    """What the support trials of an arm gave, None where one failed or was unsupported."""

    evidence: Evidence | None
    counters: Counters | None
    data: str


class Checked:
    """One workload under the check.

    Attributes
    ----------
    left_out : arms that cannot act here, or cannot be judged by one seed, with the reason
    compared : levels that were held against their base
    tell : called with what is being done, for a person who waits
    """

    doing = "setting up"

    def __init__(self, command: RunCommand, folder: Path, device: Device) -> None:
        self.name = str(command.workload["name"])
        self.manifest = _planned(command, device)
        self.left_out: dict[str, str] = {}
        self.compared = 0
        self.tell: Callable[[str], None] = lambda text: None
        self._repeats = True
        self._folder, self._device = folder, device
        self._cls, _ = plan.load_workload(command.workload)
        self._sweep = self._started(folder / "check", self.manifest)
        self._runs = dict(self._packs())
        self._reference = self.manifest.arm(next(iter(self.manifest.sweep.references.values())))
        self._observed: dict[str, _Observed] = {}

    def findings(self) -> Iterator[Finding]:
        """Defects, those first that make others meaningless."""
        failed = list(self._observe(self._reference))
        if self._observed[self._reference.id].evidence is None:
            why = self.left_out.get(self._reference.label, "")
            yield from failed or [
                Finding(Defect.FAILS, f"{self.name}, baseline", f"it cannot act here: {why}")
            ]
            return
        yield from failed
        yield from self._of_the_baseline()
        for arm in self.manifest.arms:
            if arm != self._reference:
                yield from self._observe(arm)
        for effect in self.manifest.effects:
            yield from self._of_a_level(effect)
        arms = [one.counters for one in self._observed.values()]
        yield from rules.host_reads(
            self.name, self._probed["reads"], self._observed[self._reference.id].counters, arms
        )

    def _packs(self) -> Iterator[tuple[str, PackRun]]:
        """Two packs: arms that a fork can run, and arms whose processes must be started anew."""
        for pack in self.manifest.packs:
            yield pack.start, PackRun(self._sweep, self.manifest, pack)

    def _started(self, path: Path, manifest: Manifest) -> SweepFolder:
        folder = SweepFolder(path)
        path.mkdir(parents=True)
        folder.write_manifest(manifest)
        return folder

    def _run_of(self, arm: Arm) -> PackRun:
        return next(run for run in self._runs.values() if arm.id in run.pack.arms)

    def _observe(self, arm: Arm) -> Iterator[Finding]:
        """Evidence and counters of an arm; a finding if one of them fails."""
        run, found = self._run_of(arm), {}
        for kind in (Kind.EVIDENCE, Kind.COUNTING):
            self.tell(
                f"{arm.label}: {kind.value} trial, {len(self._observed) + 1} of {len(self.manifest.arms)}"
                " arms"
            )
            found[kind] = run.again(arm, kind)
            if found[kind].record.outcome is Outcome.UNSUPPORTED:
                self.left_out[arm.label] = _why(found[kind])
                break
            if found[kind].record.outcome is not Outcome.OK:
                yield Finding(
                    Defect.FAILS, f"{self.name}, {arm.label}, {kind.value} trial", _where(found[kind])
                )
                break
        counting = found.get(Kind.COUNTING)
        counters = counting.record.counters if counting and counting.record.outcome is Outcome.OK else None
        shown = found[Kind.EVIDENCE]
        self._observed[arm.id] = _Observed(_evidence(shown), counters, shown.record.keys.get("data", ""))

    def _of_the_baseline(self) -> Iterator[Finding]:
        checks, first = self._cls.checks, self._observed[self._reference.id].evidence
        if first is None:
            return
        self.tell("baseline: does it repeat, and leave nothing behind?")
        timing = self._run_of(self._reference).again(self._reference, Kind.TIMING)
        if timing.record.outcome is not Outcome.OK:
            yield Finding(Defect.FAILS, f"{self.name}, timing trial", _where(timing))
        cached = self._evidence_again(self._run_of(self._reference))
        fresh = self._evidence_again(self._elsewhere("fresh"))
        early = self._early(1) if self._cls.shape == "steps" else []
        yield from rules.no_evidence(self.name, checks, first, early[0] if early else None)
        if early and rules.difference(first, fresh, checks) is not None:
            early += self._early(2)
        unlike = rules.not_repeatable(self.name, checks, [first, cached, fresh], early)
        self._repeats = not unlike  # two arms of something that does not repeat always differ
        yield from unlike
        leaks = [
            leak for leak in self._probed["leaks"] if self._repeats or not leak.startswith(trials.ELSEWHERE)
        ]
        yield from rules.state_leaks(self.name, leaks)

    def _early(self, number: int) -> list[Evidence]:
        """Evidence after a single iteration."""
        return [self._evidence_again(self._elsewhere(f"early{number}", iterations=1))]

    def _elsewhere(self, name: str, iterations: int = ITERATIONS) -> PackRun:
        """A pack with a cache folder of its own."""
        measure = dataclasses.replace(self.manifest.sweep.measure, evidence_iterations=iterations)
        sweep = self.manifest.sweep.model_copy(update={"measure": measure})
        manifest = self.manifest.model_copy(update={"sweep": sweep})
        return PackRun(
            self._started(self._folder / name, manifest), manifest, self._run_of(self._reference).pack
        )

    def _evidence_again(self, run: PackRun) -> Evidence:
        found = run.again(self._reference, Kind.EVIDENCE)
        evidence = _evidence(found)
        if evidence is None:
            raise RecordError(f"{self.name}: the same trial succeeded before and now fails: {_where(found)}")
        return evidence

    @property
    def _probed(self) -> dict[str, list[str]]:
        """What a process of its own found: leaks and reads."""
        folder = self._folder / "probe"
        answer = folder / "answer.json"
        if not answer.exists():
            _probe(self._spec(), folder, answer, self._cls.__module__)
        return json.loads(answer.read_text())

    def _spec(self) -> TrialSpec:
        return TrialSpec.of(
            self.manifest.sweep, self._reference, Kind.EVIDENCE, "probe", self._folder / "probe" / "cache"
        )

    def _of_a_level(self, effect: Effect) -> Iterator[Finding]:
        arm_id, base_id = effect.pairs[0]
        arm, base = self._observed.get(arm_id), self._observed.get(base_id)
        if arm is None or base is None or arm.evidence is None or base.evidence is None:
            return
        self.compared += 1
        subject = f"{effect.toggle}={effect.level}"
        one, other = self.manifest.arm(arm_id), self.manifest.arm(base_id)
        agreement = Agreement(self.manifest, self._run_of(one).progress, read_evidence)
        level = self._cls.levels_of(one.levels)[effect.toggle]
        same = not rules.differ(base.evidence, arm.evidence)
        yield from rules.nothing_changes(level, subject, base.counters, arm.counters, same)
        yield from rules.data_change(subject, base.data, arm.data)
        result = agreement.judged(base.evidence, arm.evidence, one, other)
        if result.parity_class is Parity.STOCHASTIC:
            self.left_out[subject] = (
                "draws at random, so whether it is equivalent takes several seeds: a sweep runs them"
            )
        if self._repeats:
            yield from rules.results_change(subject, result)


def _planned(command: RunCommand, device: Device) -> Manifest:
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
    sweep = SweepConfig(name="check", designs=[DesignConfig("one_at_a_time")])
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


def _why(found: StoredTrial) -> str:
    return found.record.failure.message if found.record.failure else found.record.outcome.value


def _where(found: StoredTrial) -> str:
    """What a trial raised, with the last line of the user's own code that it passed."""
    failure: Any = found.record.failure
    if failure is None:
        return f"it ended as {found.record.outcome.value}"
    own = [line.strip() for line in failure.traceback.splitlines() if line.strip().startswith("File ")]
    outside = [
        line
        for line in own
        if not any(part in line for part in ("/torch/", "/pipelines/", "/workloads/", "/lib/python"))
    ]
    place = f" ({outside[-1]})" if outside else ""
    return f"{failure.type}: {failure.message}{place}"
