"""A workload's claims with their rulings in a sweep: from effects, or from the figures of single arms."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from perfsweep.pipelines.analysis import claim_refusals
from perfsweep.pipelines.analysis.arm_records import ArmRecords
from perfsweep.pipelines.analysis.columns import Column, ValueType, file_column, parquet_table
from perfsweep.pipelines.analysis.decisions import Decisions, decide
from perfsweep.pipelines.analysis.effect_result import MEMORY, SPEED, EffectResult, RuledClaim
from perfsweep.pipelines.config.validation import load_workload
from perfsweep.pipelines.parity.comparison import ParityVerdict
from perfsweep.pipelines.parity.evidence import Agreement
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.statistics.claim_rules import Ruled, Ruling, claimed_gain, rule_claim, rule_predicate
from perfsweep.pipelines.statistics.estimates import Estimate
from perfsweep.pipelines.statistics.log_ratios import Rounds
from perfsweep.pipelines.statistics.verdicts import MARGIN, Judgement, Verdict
from perfsweep.pipelines.store.records import PLACEBO, Arm, Effect, Manifest
from perfsweep.pipelines.store.schema import Declared
from perfsweep.workloads.api import Claim, Toggle
from perfsweep.workloads.errors import PerfsweepError

MEMORY_STEP_BYTES = 2**21
"""The least difference of peak memory that is one: a huge page of the kernel, and what CUDA's caching
allocator takes from the device at a time for small tensors. Less moves with rounding, not with what an arm
needs."""


def decide_memory(
    peaks: Rounds, peak_bytes: Sequence[float], effects: Sequence[Effect], withheld: Mapping[str, Judgement]
) -> Decisions:
    """Judge peak memory as strictly as time: corrected for the number of effects, beyond a margin.

    *Faster* means less memory. Placebos are left out: what a copy of the reference keeps on purpose is no
    scatter.

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


@dataclass(frozen=True)
class Claims:
    """What reports claim about a workload under a configuration, with the toggles that the claims name.

    `missing` says why there are none although reports make some.
    """

    claims: Sequence[Claim] = ()
    toggles: Sequence[Toggle] = ()
    config: Any = None
    missing: str = ""


def claims_of(manifest: Manifest, declared: Declared) -> Claims:
    """Import a sweep's workload and read its claims: that a device cannot decide one is said by code.

    A workload about which nothing is claimed is not imported.
    """
    if not declared.claims:
        return Claims()
    try:
        cls, config = load_workload(manifest.sweep.workload, manifest.sweep.config)
    except PerfsweepError as error:
        return Claims(missing=f"claims are not ruled on: {error}")
    named = {name for arm in manifest.arms for name in arm.levels}
    spoken = [claim for claim in cls.claims if claim.speaks_of(config)]
    return Claims(spoken, cls.toggles_named(named), config)


class Ruler:
    """Rules on the claims about the arms of one sweep; `memory` is set once that is decided."""

    def __init__(self, manifest: Manifest, claims: Claims, records: ArmRecords, agreement: Agreement) -> None:
        self.manifest, self.records, self.agreement = manifest, records, agreement
        self.claims, self.toggles = claims.claims, claims.toggles
        self.space = Space(tuple(claims.toggles), claims.config, records.device())
        self.memory = Decisions({}, {})

    def of_effect(
        self, result: EffectResult, estimate: Estimate | None, judgement: Judgement | None
    ) -> tuple[RuledClaim, ...]:
        """Rule on the claims about exactly the levels that set the arm apart from its base."""
        arm, base = (self.manifest.arm(name) for name in result.effect.pairs[0])
        moved = {name: value for name, value in arm.levels.items() if value != base.levels.get(name)}
        claims = [claim for claim in self.claims if any(dict(levels) == moved for levels in claim.arms)]
        return tuple(
            self._about_effect(claim, result, arm, estimate, judgement)
            for claim in claims
            if claim.against.items() <= base.levels.items()
        )

    def _about_effect(
        self,
        claim: Claim,
        result: EffectResult,
        arm: Arm,
        estimate: Estimate | None,
        judgement: Judgement | None,
    ) -> RuledClaim:
        effect = result.effect
        subject = f"{effect.toggle}={effect.level}" if effect.level else effect.toggle
        if obstacle := self._obstacle(claim):
            return RuledClaim(claim, subject, effect.design, Ruling.NOT_MEASURABLE, obstacle)
        if result.outcome:
            return RuledClaim(claim, subject, effect.design, Ruling.UNDECIDED, result.outcome)
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
        standing = claim_refusals.obstacles(claim, self.toggles, self.records.device())
        return claim_refusals.obstacle_text(standing)

    def figure_of(self, arm: str, figure: str | None) -> float | None:
        """What a claim's figure is for an arm; None where it was not measured."""
        lookup = functools.partial(self._counted, arm)
        return claim_refusals.figure_value(figure or "", lookup, self.records.timed(arm))

    def _counted(self, arm: str, name: str) -> float | None:
        """A counter of an arm, a number of its evidence, or whether it kept the reference's results."""
        if name == claim_refusals.RESULTS_KEPT:
            return self._results_kept(arm)
        value = (self.records.counters(arm) or {}).get(name)
        if value is None and (evidence := self.agreement.evidence(arm)):
            value = evidence.numbers.get(name)
        return value

    def _results_kept(self, arm: str) -> float | None:
        """1 where results are the first reference's as far as the levels allow, 0 where they differ."""
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
