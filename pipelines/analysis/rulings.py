"""A workload's claims with their rulings in a sweep: from effects, or from the counters of single arms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from pipelines.analysis import claim_refusals
from pipelines.analysis.judge import EffectResult, Judge
from pipelines.plan.arms import Space
from pipelines.statistics.verdicts import Ruling
from pipelines.store.records import Manifest
from workloads.api import Claim

SCHEMA: dict[str, type[pl.DataType]] = {
    "workload": pl.String,
    "source": pl.String,
    "section": pl.String,
    "claim": pl.String,
    "subject": pl.String,
    "design": pl.String,
    "ruling": pl.String,
    "reason": pl.String,
    "ratio": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "figure": pl.String,
    "value": pl.Float64,
    "sweep": pl.String,
    "machine": pl.String,
}


@dataclass(frozen=True)
class RuledClaim:
    """One claim about an effect or arm; `reason` says why none is ruled, `value` is a predicate's figure."""

    claim: Claim
    subject: str
    design: str
    ruling: str
    reason: str = ""
    effect: EffectResult | None = None
    value: float | None = None


def all_rulings(manifest: Manifest, effects: Sequence[EffectResult], judge: Judge) -> tuple[RuledClaim, ...]:
    """List the effects' rulings, then rule on predicates about arms without an effect (the naive path)."""
    about_effects = [
        _effect_ruling(result, claim, text) for result in effects for claim, text in result.rulings
    ]
    ruled = {one.claim.text for one in about_effects}
    applicable = [claim for claim in judge.cls.claims if claim.speaks_of(judge.config)]
    predicates = [claim for claim in applicable if claim.kind == "predicate" and claim.text not in ruled]
    return (*about_effects, *_arm_rulings(manifest, predicates, judge))


def _effect_ruling(result: EffectResult, claim: Claim, text: str) -> RuledClaim:
    ruling, _, reason = text.partition(": ")
    subject = f"{result.effect.toggle}={result.effect.level}" if result.effect.level else result.effect.toggle
    return RuledClaim(claim, subject, result.effect.design, ruling, reason, result)


def _arm_rulings(manifest: Manifest, claims: Iterable[Claim], judge: Judge) -> Iterable[RuledClaim]:
    space = Space(judge.cls.toggles, judge.config, judge.device())
    for claim in claims:
        legal = [dict(space.closure(levels)) for levels in claim.arms]
        arm = next((arm for arm in manifest.arms if dict(arm.levels) in legal), None)
        if arm is None:
            continue
        if standing := claim_refusals.obstacles(claim, judge.cls.toggles, judge.device()):
            reason = claim_refusals.obstacle_text(standing)
            yield RuledClaim(claim, arm.label, "arm", Ruling.NOT_MEASURABLE.value, reason)
            continue
        value = judge.figure_of(arm.id, claim.figure)
        if value is not None:
            holds = (claim.low is None or value >= claim.low) and (claim.high is None or value <= claim.high)
            ruling = Ruling.CONFIRMED if holds else Ruling.REFUTED
            yield RuledClaim(claim, arm.label, "arm", ruling.value, value=value)


def ruling_table(rulings: Sequence[RuledClaim], manifest: Manifest, machine: str) -> pl.DataFrame:
    """Tabulate rulings, a row each, with the evidence they rest on."""
    rows = []
    for one in rulings:
        result = one.effect
        rows.append(
            {
                "workload": manifest.sweep.workload,
                "source": one.claim.source,
                "section": one.claim.section,
                "claim": one.claim.text,
                "subject": one.subject,
                "design": one.design,
                "ruling": one.ruling,
                "reason": one.reason,
                "ratio": result.ratio if result else None,
                "low": result.low if result else None,
                "high": result.high if result else None,
                "figure": one.claim.figure,
                "value": one.value,
                "sweep": manifest.sweep.name,
                "machine": machine,
            }
        )
    return pl.DataFrame(rows, schema=SCHEMA)
