"""A workload's claims with their rulings in a sweep: from effects, or from the figures of single arms."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median

import polars as pl

from perfsweep.pipelines.analysis.arm_records import ArmRecords
from perfsweep.pipelines.analysis.columns import Column, ValueType, file_column, parquet_table
from perfsweep.pipelines.analysis.effect_result import (
    MEMORY,
    SPEED,
    Decisions,
    EffectResult,
    RuledClaim,
    decide,
    level_name,
)
from perfsweep.pipelines.parity.evidence import Agreement
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.statistics.claim_rules import (
    Obstacle,
    Ruled,
    Ruling,
    claimed_gain,
    rule_claim,
    rule_predicate,
)
from perfsweep.pipelines.statistics.estimates import Estimate
from perfsweep.pipelines.statistics.log_ratios import Rounds
from perfsweep.pipelines.statistics.verdicts import MARGIN, Judgement, Verdict
from perfsweep.pipelines.store.planned import known_workload
from perfsweep.pipelines.store.records import PLACEBO, Arm, Effect, Manifest, TrialRecord
from perfsweep.pipelines.store.schema import Declared
from perfsweep.workloads.api import Claim, Device, Levels, Toggle
from perfsweep.workloads.errors import PerfsweepError

MEMORY_STEP_BYTES = 2**21
"""The least difference of peak memory that is one: a huge page of the kernel, and what CUDA's caching
allocator takes from the device at a time for small tensors. Less moves with rounding, not with what an arm
needs."""


def decide_memory(
    peaks: Rounds, peak_bytes: Sequence[float], effects: Sequence[Effect], withheld: Mapping[str, Judgement]
) -> Decisions:
    """Judge peak memory as strictly as time: corrected for the number of effects, beyond a margin.

    *Faster* means less memory. Placebos are left out: a copy of the baseline keeps memory on purpose, which
    is no scatter.

    Parameters
    ----------
    peak_bytes : of all trials; `MEMORY_STEP_BYTES` of the smallest is the margin where that is more than 1 %
    """
    smallest = min((peak for peak in peak_bytes if peak > 0), default=math.inf)
    margin = max(MARGIN, math.log1p(MEMORY_STEP_BYTES / smallest))
    # Disturbed trials need as much memory as others.
    withheld = {name: one for name, one in withheld.items() if one.verdict is not Verdict.HELD_BACK}
    compared = [effect for effect in effects if effect.design != PLACEBO and not effect.contrast]
    return decide(peaks, compared, withheld, margin)


class Ruler:
    """Rules on the claims about the arms of one sweep; `memory` is set once that is decided.

    Claims are read from the sweep's workload, where it is known here: code says what a device cannot decide.
    A workload about which nothing is claimed is not imported. `missing` says why there are none although
    reports make some.
    """

    def __init__(
        self, manifest: Manifest, declared: Declared, records: ArmRecords, agreement: Agreement
    ) -> None:
        self.manifest, self.records, self.agreement = manifest, records, agreement
        self.claims: Sequence[Claim] = ()
        self.toggles: Sequence[Toggle] = ()
        self.missing, config = "", None
        if declared.claims:
            try:
                cls, config = known_workload(manifest.sweep.workload, manifest.sweep.config)
            except PerfsweepError as error:
                self.missing = f"claims are not ruled on: {error}"
            else:
                self.claims = [claim for claim in cls.claims if claim.speaks_of(config)]
                self.toggles = cls.toggles_named({name for arm in manifest.arms for name in arm.levels})
        self.space = Space(tuple(self.toggles), config, records.device())
        self.memory = Decisions({}, {})

    def of_effect(
        self, result: EffectResult, estimate: Estimate | None, judgement: Judgement | None
    ) -> tuple[RuledClaim, ...]:
        """Rule on the claims about exactly the levels that set the arm apart from its base."""
        arm, base = (self.manifest.arm(name) for name in result.effect.pairs[0])
        moved = {name: value for name, value in arm.levels.items() if value != base.levels.get(name)}
        claims = [claim for claim in self.claims if any(dict(levels) == moved for levels in claim.arms)]
        return tuple(
            self._about_effect(claim, result, arm, moved, estimate, judgement)
            for claim in claims
            if claim.against.items() <= base.levels.items()
        )

    def _about_effect(
        self,
        claim: Claim,
        result: EffectResult,
        arm: Arm,
        moved: Levels,
        estimate: Estimate | None,
        judgement: Judgement | None,
    ) -> RuledClaim:
        effect = result.effect
        subject = level_name(effect)
        if obstacle := self._obstacle(claim):
            return RuledClaim(claim, subject, effect.design, Ruling.NOT_MEASURABLE, obstacle)
        if result.outcome:
            refused = _levels_refusal(moved, self.toggles, self.records.device())
            ruling = Ruling.NOT_MEASURABLE if refused else Ruling.UNDECIDED
            return RuledClaim(claim, subject, effect.design, ruling, refused or result.word)
        if claim.kind == "predicate":
            return self._about_arm(claim, arm, subject, effect.design, result.verdict)
        figure = SPEED
        if claim.kind == "memory":
            figure = MEMORY
            estimate, judgement = self.memory.estimates.get(effect.id), self.memory.verdicts.get(effect.id)
        if estimate is None or judgement is None:
            return RuledClaim(claim, subject, effect.design, Ruling.UNDECIDED, "not measured yet", figure)
        ruled = rule_claim(claimed_gain(claim), judgement, estimate.log_ratio)
        low, high = judgement.corrected.ratios if judgement.corrected else (None, None)
        shown = figure, math.exp(estimate.log_ratio), low, high
        return RuledClaim(claim, subject, effect.design, ruled.ruling, ruled.reason, *shown)

    def of_arms(self, ruled: set[tuple[str, str]]) -> Iterator[RuledClaim]:
        """Rule on predicates about arms without an effect (the naive path), but for claims ruled by now."""
        for claim in self.claims:
            if claim.kind != "predicate" or (claim.section, claim.text) in ruled:
                continue
            legal = [dict(self.space.closure(levels)) for levels in claim.arms]
            arm = next((arm for arm in self.manifest.arms if dict(arm.levels) in legal), None)
            if arm is None:
                continue
            if obstacle := self._obstacle(claim):
                yield RuledClaim(claim, arm.label, "arm", Ruling.NOT_MEASURABLE, obstacle)
            elif self.figure_of(arm.id, claim.figure) is not None:
                differs = self._results_kept(arm.id) == 0
                yield self._about_arm(claim, arm, arm.label, "arm", Verdict.DIFFERENT if differs else None)

    def _about_arm(
        self, claim: Claim, arm: Arm, subject: str, design: str, verdict: Verdict | None
    ) -> RuledClaim:
        value = self.figure_of(arm.id, claim.figure)
        ruled: Ruled = rule_predicate(claim, value, verdict)
        return RuledClaim(claim, subject, design, ruled.ruling, ruled.reason, claim.figure, value=value)

    def _obstacle(self, claim: Claim) -> str:
        standing = obstacles(claim, self.toggles, self.records.device())
        return obstacle_text(standing)

    def figure_of(self, arm: str, figure: str | None) -> float | None:
        """What a claim's figure is for an arm; None where it was not measured."""
        lookup = functools.partial(self._counted, arm)
        return figure_value(figure or "", lookup, self.records.timed(arm))

    def _counted(self, arm: str, name: str) -> float | None:
        """A counter of an arm, a number of its evidence, or whether it kept the baseline's results."""
        if name == RESULTS_KEPT:
            return self._results_kept(arm)
        if name == WARM_COMPILE_S:
            return self.records.warm_compile_s(arm)
        value = (self.records.counters(arm) or {}).get(name)
        if value is None and (evidence := self.agreement.evidence(arm)):
            value = evidence.numbers.get(name)
        return value

    def _results_kept(self, arm: str) -> float | None:
        """1 where results equal the first reference arm's as far as the levels allow, 0 where they differ."""
        verdict = self.agreement.between(arm, next(iter(self.manifest.sweep.references.values()))).verdict
        return None if verdict is ParityVerdict.UNCHECKED else float(verdict is not ParityVerdict.DIFFERENT)


def all_rulings(effects: Sequence[EffectResult], ruler: Ruler) -> tuple[RuledClaim, ...]:
    """List the effects' rulings, then those about arms without an effect."""
    about_effects = [one for result in effects for one in result.rulings]
    return (*about_effects, *ruler.of_arms({(one.claim.section, one.claim.text) for one in about_effects}))


RULINGS: tuple[Column[RuledClaim], ...] = (
    file_column("source", lambda one: one.claim.source, doc="who makes the claim"),
    file_column("section", lambda one: one.claim.section, doc="where in the source"),
    file_column("claim", lambda one: one.claim.text, doc="what is claimed"),
    file_column("subject", lambda one: one.subject, doc="the level or arm that it is about"),
    file_column("design", lambda one: one.design, doc="design of the effect that rules on it, or `arm`"),
    file_column("ruling", lambda one: one.ruling.value, doc="what the sweep says of the claim"),
    file_column("reason", lambda one: one.reason, doc="why there is none, or how far it goes; may be empty"),
    file_column("ratio", lambda one: one.ratio, float, "of time or peak memory, arm to base"),
    file_column("low", lambda one: one.low, float, "lower end of the interval that the ruling rests on"),
    file_column("high", lambda one: one.high, float, "upper end"),
    file_column("figure", lambda one: one.figure, doc="`speed`, `memory`, or the counter that it rests on"),
    file_column("value", lambda one: one.value, float, "of that counter"),
)
"""Of one ruling each row."""

SHARED = ("workload", "sweep", "machine")
"""Columns of the file that are the same in all rows."""

SCHEMA: dict[str, ValueType] = {**dict.fromkeys(SHARED, str), **{one.key: one.kind for one in RULINGS}}
"""Of the file."""


def ruling_table(rulings: Sequence[RuledClaim], manifest: Manifest, machine: str) -> pl.DataFrame:
    """Tabulate rulings, a row each, with the evidence they rest on."""
    shared = zip(SHARED, (manifest.sweep.workload, manifest.sweep.name, machine), strict=True)
    named = [pl.lit(value, pl.String).alias(name) for name, value in shared]
    return parquet_table(RULINGS, rulings).with_columns(named).select(list(SCHEMA))


def obstacles(claim: Claim, toggles: Sequence[Toggle], device: Device) -> tuple[Obstacle, ...]:
    """Find what prevents a ruling on a claim on this device; nothing where nothing refuses it.

    The words in which a claim or a level refuses a device are not parsed. An obstacle counts if this device
    has it and the claim is still refused after all other obstacles are removed. A claim that names no arm and
    gives no bound is a rule, on any device.
    """
    if is_rule(claim):
        return (Obstacle.A_RULE,)
    if not refusal(claim, toggles, device):
        return ()
    standing = [obstacle for obstacle in Obstacle if obstacle.stands(device) and obstacle in FACTS_WITHOUT]
    needed = [
        one
        for one in standing
        if refusal(claim, toggles, device_without(device, [other for other in standing if other is not one]))
    ]
    return tuple(needed or standing)


def is_rule(claim: Claim) -> bool:
    """Whether a claim says how to measure, or what else to compute, instead of what comes out."""
    return not claim.arms and claim.figure is None and claim.low is None and claim.high is None


def refusal(claim: Claim, toggles: Sequence[Toggle], device: Device) -> str | None:
    """Say in a claim's or its levels' words why a device can rule on none of its arms; None where it can."""
    if reason := claim.unsupported(device):
        return reason
    reasons = [_levels_refusal(levels, toggles, device) for levels in claim.arms]
    return next(iter(reasons), None) if all(reasons) else None


def _levels_refusal(levels: Levels, toggles: Sequence[Toggle], device: Device) -> str | None:
    by_name = {toggle.name: toggle for toggle in toggles}
    for name, level in [(name, by_name[name].level(levels[name])) for name in levels if name in by_name]:
        if reason := level.unsupported(device):
            return f"{name}={level.value} {reason}"
    return None


def obstacle_text(standing: Iterable[Obstacle]) -> str:
    """Join obstacles: ``needs a CUDA device and needs several devices``."""
    return " and ".join(obstacle.value for obstacle in standing)


FACTS_WITHOUT: dict[Obstacle, dict[str, object]] = {
    Obstacle.NO_CUDA: {"type": "cuda", "memory_bytes": 10**12, "name": "any", "capability": (0, 0)},
    Obstacle.NO_TENSOR_CORES: {"capability": (10, 0)},
    Obstacle.ONE_DEVICE: {"count": 8},
    Obstacle.NO_COMPILER: {"compiler": True},
}
"""The facts of a device that an obstacle is about, with the values that they have without the obstacle."""


def device_without(device: Device, lifted: Iterable[Obstacle]) -> Device:
    """A device on which some obstacles are absent."""
    facts = {name: value for obstacle in lifted for name, value in FACTS_WITHOUT[obstacle].items()}
    return dataclasses.replace(device, **facts)  # type: ignore[arg-type]


Lookup = Callable[[str], float | None]
"""A counter or a number of one arm by its name; None where it was not counted."""

Timings = Sequence[TrialRecord]
"""Timing trials of one arm that ended well."""

WARM_COMPILE_S = "warm_compile_s"
"""Seconds of compiling with a cache on disk; `compile_s` is without it."""

RESULTS_KEPT = "results_kept"
"""1 where parity finds an arm's results to be those of the baseline, 0 where they differ."""


def figure_value(name: str, lookup: Lookup, timings: Timings) -> float | None:
    """Compute the figure of an arm that a claim names: ``a+b``, ``a*b``, ``a/b`` of counters and numbers.

    None where something it needs was not measured, or it divides by zero.
    """
    for sign, combine in (("+", operator.add), ("/", operator.truediv), ("*", operator.mul)):
        first, _, second = name.rpartition(sign)
        if first:
            left, right = (figure_value(part, lookup, timings) for part in (first, second))
            if left is None or right is None or (sign == "/" and right == 0):
                return None
            return combine(left, right)
    derived = DERIVED_FIGURES.get(name)
    return derived(lookup, timings) if derived else lookup(name)


def _seconds_per_iteration(lookup: Lookup, timings: Timings) -> float | None:
    """Time of the timed region by its iterations, median over the trials."""
    seconds = [record.time_ns / 1e9 / record.iterations for record in timings if record.iterations]
    return median(seconds) if seconds else None


def _device_busy_share(lookup: Lookup, timings: Timings) -> float | None:
    """Share of the time in which any kernel runs: device time counted, by the wall time of timing trials."""
    busy_ns = lookup("device_busy_ns")
    wall_ns = [record.ns_per_unit for record in timings if record.units > 0]
    return busy_ns / median(wall_ns) if busy_ns is not None and wall_ns else None


DERIVED_FIGURES: Mapping[str, Callable[[Lookup, Timings], float | None]] = {
    "seconds_per_iteration": _seconds_per_iteration,
    "device_busy_share": _device_busy_share,
}
"""Figures that any workload's claims may name in addition to its own counters and numbers."""
