"""Steps of a search as packs of one sweep: measures what a step asks for, and reads what is known of every
arm so far.

The sweep grows by a pack with each step; what is measured already is found again, so that the same search,
started anew, comes to where it was.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
from omegaconf import DictConfig
from rich.console import Console

from pipelines.analysis import collect
from pipelines.analysis.comparable import comparable_trials
from pipelines.analysis.counters import counters_of
from pipelines.config.types import SweepCommand, as_measure
from pipelines.execution import executor_choice, launch, progress_display
from pipelines.parity.comparison import ParityVerdict
from pipelines.parity.evidence import Agreement
from pipelines.plan import plan
from pipelines.plan.arms import Space
from pipelines.plan.designs import Assignment
from pipelines.search.arm_times import log_times
from pipelines.search.search import Seen
from pipelines.statistics.log_ratios import Cell
from pipelines.store import provenance
from pipelines.store.progress import Progress, read_progress
from pipelines.store.records import (
    Arm,
    Effect,
    Kind,
    Manifest,
    Outcome,
    Pack,
    SweepFolder,
    TrialRecord,
    read_evidence,
)
from pipelines.trial import environment
from pipelines.trial.identity import arm_id
from workloads import registry
from workloads.errors import PerfsweepError


class PackBroke(PerfsweepError):
    """A pack of a search ended before it had measured what it was to measure."""


@dataclass(frozen=True)
class Wanted:
    """An arm that a step asks for: levels, what it is compared with, and how the report calls the
    comparison."""

    levels: Assignment
    base: Assignment
    design: str
    toggle: str
    level: str


@dataclass(frozen=True)
class Limits:
    """What rules an arm out, and what its cost is made of; None: no such limit.

    Attributes
    ----------
    iterations : of the reference, for whose work set-up and compiling are to pay; None: the time per unit
        alone counts
    compile_s : seconds of compiling, with nothing compiled yet
    """

    iterations: float | None = None
    compile_s: float | None = None


class Bench:
    """A sweep that grows while a search goes on."""

    def __init__(
        self,
        console: Console,
        command: SweepCommand,
        cfg: DictConfig,
        limits: Limits,
        rounds: int,
        reference: Mapping[str, Any],
    ) -> None:
        self._console, self._command, self._limits = console, command, limits
        self._config_text = provenance.sweep_yaml(cfg)
        self.where = executor_choice.choose(command.cluster)
        if self.where.line:
            console.print(self.where.line, style="yellow", highlight=False)
        command.cluster.executor = self.where.executor
        self.device = executor_choice.planning_device(command.cluster, self.where, environment.device_facts())
        measure = dataclasses.replace(
            command.measure, rounds=rounds, precision=None, budget_s=None, aa=False, repeats=0
        )
        self._planned = dataclasses.replace(command, measure=measure)
        self.space, self.manifest = _beginning(self._planned, self.device, reference)
        self.folder = SweepFolder(Path(command.runs) / self.manifest.sweep.name)
        self.reference = self.manifest.arms[0]
        self._numbers: dict[str, str] = {}

    def measure(self, wanted: Sequence[Wanted]) -> None:
        """Add a step to the sweep and measure what is missing of it.

        Raises
        ------
        PackBroke
            A pack broke off.
        KeyboardInterrupt
            Finished rounds stay.
        """
        self.manifest = extended(self.manifest, wanted, self.space, self._command.cluster.arms_per_pack)
        todo = self._todo()
        packs = [pack for pack in self.manifest.packs if todo[pack.id]]
        if not packs:
            return
        launch.refuse_other_plan(self.folder, self.manifest)
        launch.prepare(self.folder, self.manifest, self._config_text)
        retry = tuple(self._command.retry)
        with progress_display.live(
            self._console, self.manifest, progress_display.trials_ahead(self._rest(packs), todo)
        ) as progress:
            done = launch.launch(
                self.folder,
                self.manifest,
                packs,
                self._command.cluster,
                self.device,
                retry,
                progress,
                self._say,
            )
        for pack, log in done.broken.items():
            raise PackBroke(
                f"pack {pack} broke off; the end of {self.folder.pack_dir(pack) / 'log.txt'}:\n{log}"
            )

    def cancel_jobs(self) -> int:
        """End the jobs of the step that is running; how many there were."""
        return launch.resume(self.folder, self.manifest, self._command.cluster).cancel()

    def arm(self, levels: Assignment) -> str:
        """Id of the arm with these levels."""
        sweep = self.manifest.sweep
        config = plan.load_workload(self._command.workload)[1]
        return arm_id(sweep.workload, config, levels, sweep.code)

    def seen(self) -> dict[str, Seen]:
        """What is known of every arm (id) that has been asked for."""
        progress = read_progress(self.folder, self.manifest)
        trials = collect.collect(self.folder, self.manifest, progress)
        sound = trials.filter(pl.col("used") & (pl.col("outcome") == Outcome.OK.value))
        used = comparable_trials(sound).trials
        agreement = Agreement(
            self.manifest, registry.find(self.manifest.sweep.workload), progress, read_evidence
        )
        facts = _facts(progress, {pack.id for pack in self.manifest.packs})
        cells = _costs(used, facts, self.reference.id, self._limits)
        times = log_times(cells, self.reference.id)
        found = {}
        for arm in self.manifest.arms:
            outcome, reason = self._ruled_out(arm, facts, agreement)
            peaks = used.filter(pl.col("arm") == arm.id)["peak_bytes"].to_list()
            peak = max(peaks) if peaks else None
            time = times.get(arm.id)
            if outcome or time is None:
                found[arm.id] = Seen(None, 0.0, reason or "no finished round", outcome or "unfinished", peak)
            else:
                found[arm.id] = Seen(time.value, time.variance, peak_bytes=peak)
        return found

    @property
    def trials(self) -> int:
        """Timing trials that the search has planned."""
        return sum(len(order) for pack in self.manifest.packs for order in pack.orders)

    def _ruled_out(
        self, arm: Arm, facts: Mapping[str, list[TrialRecord]], agreement: Agreement
    ) -> tuple[str, str]:
        """Outcome and reason of an arm that is out of the question, or nothing."""
        records = facts.get(arm.id, [])
        bad = [record for record in records if record.outcome is not Outcome.OK]
        ok = [record for record in records if record.outcome is Outcome.OK and record.kind is Kind.TIMING]
        if bad and not ok:
            return bad[-1].outcome.value, (
                bad[-1].failure.message.partition("\n")[0] if bad[-1].failure else ""
            )
        if worse := [record for record in bad if record.outcome is Outcome.OOM]:
            return Outcome.OOM.value, worse[0].failure.message.partition("\n")[0] if worse[0].failure else ""
        cold = _cold_compile_s(records)
        if self._limits.compile_s is not None and cold > self._limits.compile_s:
            return "compile_s", f"compiles for {cold:.1f} s, and tune.compile_s={self._limits.compile_s:g}"
        if arm.id == self.reference.id or not records:
            return "", ""
        if witness := self._inert(arm, facts, agreement):
            return Outcome.INERT.value, f"{witness} is the same with and without it"
        judged = agreement.between(arm.id, self.reference.id)
        if judged.verdict is ParityVerdict.DIFFERENT:
            return "different", f"changes results: {judged.reason}" if judged.reason else "changes results"
        if judged.verdict is ParityVerdict.UNCHECKED:
            return "unchecked", f"its results could not be checked: {judged.reason}"
        return "", ""

    def _inert(self, arm: Arm, facts: Mapping[str, list[TrialRecord]], agreement: Agreement) -> str:
        """The counter that should have changed and did not, of an arm that is a level by itself; or
        nothing."""
        for effect in self.manifest.effects:
            if effect.design != "one_at_a_time" or effect.pairs[0][0] != arm.id:
                continue
            witness = agreement.levels(arm)[effect.toggle].witness
            counts = [_counters(facts.get(name, [])).get(witness or "") for name in effect.pairs[0]]
            if witness is not None and counts[0] is not None and counts[0] == counts[1]:
                return witness
        return ""

    def _todo(self) -> dict[str, int]:
        here = None if self.where.remote else environment.comparison_keys(self.device)
        progress = read_progress(self.folder, self.manifest, here)
        retry = frozenset(map(Outcome, self._command.retry))
        return {pack.id: len(progress.unfinished_rounds(pack, retry)) for pack in self.manifest.packs}

    def _rest(self, packs: Sequence[Pack]) -> Manifest:
        """The plan as far as it is still to be measured, for progress."""
        ids = {arm for pack in packs for arm in pack.arms}
        return self.manifest.model_copy(
            update={"arms": tuple(arm for arm in self.manifest.arms if arm.id in ids)}
        )

    def _say(self, text: str) -> None:
        self._console.print(text, style="yellow", highlight=False)


def _beginning(command: SweepCommand, device: Any, reference: Mapping[str, Any]) -> tuple[Space, Manifest]:
    """The reference alone, with nothing to measure yet."""
    cls, config = plan.load_workload(command.workload)
    space = Space(cls.toggles, config, device)
    levels = space.closure(
        {**command.toggles, **reference}
    )  # a size may need another toggle's level beside it
    alone = plan.single_arm(dataclasses.replace(command, toggles=levels), device)
    sweep = alone.sweep.model_copy(
        update={
            "name": plan.sweep_name(command),
            "references": {"naive": alone.arms[0].id},
            "margin": command.measure.margin,
            "tracking": dataclasses.asdict(command.tracking),
            "measure": as_measure(command.measure),
        }
    )
    return space, alone.model_copy(update={"sweep": sweep, "packs": ()})


def extended(manifest: Manifest, wanted: Sequence[Wanted], space: Space, arms_per_pack: int) -> Manifest:
    """A manifest with one step more, whose arms stand in packs of their own beside the reference."""
    sweep, reference = manifest.sweep, next(iter(manifest.sweep.references.values()))
    config = registry_config(manifest)
    arms = {arm.id: arm for arm in manifest.arms}

    def known(levels: Assignment) -> str:
        identity = arm_id(sweep.workload, config, levels, sweep.code)
        arms.setdefault(identity, Arm(id=identity, label=space.label(levels), levels=levels))
        return identity

    effects = {effect.id: effect for effect in manifest.effects}
    new: dict[str, None] = {}
    bases: dict[str, None] = {reference: None}
    for one in wanted:
        arm, base = known(one.levels), known(one.base)
        new.setdefault(arm)
        bases.setdefault(base)
        if arm != base:
            effect = _effect(one, arm, base)
            effects.setdefault(effect.id, effect)
    packs = list(manifest.packs)
    rest = [arm for arm in new if arm not in bases]
    room = max(1, arms_per_pack - len(bases))
    for start in range(0, max(1, len(rest)), room):
        members = [*bases, *rest[start : start + room]]
        name = f"p{len(packs):03d}"
        orders = plan.balanced_orders(members, sweep.measure.rounds, f"{sweep.measure.seed}-{name}")
        by_exec = any(plan.needs_exec(space, arms[arm]) for arm in members)
        packs.append(Pack(id=name, orders=orders, start="exec" if by_exec else "fork"))
    return manifest.model_copy(
        update={"arms": tuple(arms.values()), "effects": tuple(effects.values()), "packs": tuple(packs)}
    )


def registry_config(manifest: Manifest) -> Any:
    """The typed workload configuration of a manifest."""
    return plan.load_workload({"name": manifest.sweep.workload, **manifest.sweep.config})[1]


def _effect(one: Wanted, arm: str, base: str) -> Effect:
    identity = json.dumps([one.design, one.toggle, one.level, arm, base])
    number = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return Effect(
        id=number,
        design=one.design,
        toggle=one.toggle,
        level=one.level,
        pairs=((arm, base),),
        reference="naive",
    )


def _facts(progress: Progress, packs: set[str]) -> dict[str, list[TrialRecord]]:
    """All records of each arm (id). Packs of later steps do not count: a search that is started anew must see
    what it saw."""
    found: dict[str, list[TrialRecord]] = {}
    for (arm, _), one in progress.other.items():
        found.setdefault(arm, []).append(one.record)
    timings = [attempts for (pack, _), attempts in progress.timing.items() if pack in packs]
    for arms in (arms for attempts in timings for arms in attempts.values()):
        for arm, one in arms.items():
            found.setdefault(arm, []).append(one.record)
    return found


def _counters(records: Sequence[TrialRecord]) -> Mapping[str, float | None]:
    counting = next((record for record in records if record.kind is Kind.COUNTING), None)
    return (
        counters_of(counting, [record for record in records if record.kind is Kind.TIMING])
        if counting
        else {}
    )


def _cold_compile_s(records: Sequence[TrialRecord]) -> float:
    """Seconds of compiling with nothing compiled yet."""
    return max(
        (record.counters.get("compile_s") or 0.0 for record in records if record.kind is Kind.COUNTING),
        default=0.0,
    )


def _costs(
    used: pl.DataFrame, facts: Mapping[str, list[TrialRecord]], reference: str, limits: Limits
) -> list[Cell]:
    """What each arm costs in each round: its time per unit, or the seconds of the stated work with set-up and
    compiling."""
    own = used.filter(pl.col("arm") == reference)
    per_iteration = median((own["units"] / own["iterations"]).to_list()) if own.height else 1.0
    cells = []
    for pack, number, generation, arm, value in used.select(
        "pack", "round", "generation", "arm", "ns_per_unit"
    ).iter_rows():
        if limits.iterations is not None:
            value = _one_off_s(facts.get(arm, [])) + limits.iterations * per_iteration * value / 1e9
        cells.append(Cell(pack, number, generation, arm, value))
    return cells


def _one_off_s(records: Sequence[TrialRecord]) -> float:
    """Set-up and first iteration, with what compiling takes while nothing is compiled yet."""
    cold = _cold_compile_s(records)
    timed = [record for record in records if record.kind is Kind.TIMING and record.outcome is Outcome.OK]
    one_off = [
        record.setup_s + record.first_iteration_s + max(0.0, cold - record.compile_s) for record in timed
    ]
    return median(one_off) if one_off else math.inf
