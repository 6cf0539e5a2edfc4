"""Judge every effect of a sweep: estimate, verdict, parity, memory, compile cost, rulings of claims."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import polars as pl

from pipelines.analysis import claim_refusals
from pipelines.analysis.comparable import differing_data
from pipelines.analysis.counters import counters_of
from pipelines.analysis.decisions import decide
from pipelines.analysis.outcomes import Counts
from pipelines.config.types import workload_config
from pipelines.parity.comparison import ParityResult, ParityVerdict
from pipelines.parity.evidence import Agreement
from pipelines.statistics.estimates import Estimate, estimate_effect
from pipelines.statistics.log_ratios import Cell, Rounds
from pipelines.statistics.verdicts import Judgement, Ruling, Verdict, rule_claim
from pipelines.store.progress import Progress
from pipelines.store.records import Arm, Effect, Kind, Manifest, Outcome, TrialRecord, read_evidence
from pipelines.trial.device_activity import bound_by
from pipelines.trial.steady import break_even
from workloads.api import Claim, Device, Evidence, Workload

BASE = "base "
"""Before an outcome: the arm may well have run, but what it is measured against did not."""
OTHER_DATA = "other data"
"""Instead of an outcome: the arms did not work on the same data."""
SHOWN_ROUNDS = 100
"""An undecided effect that needs more rounds than this is not worth deciding."""


@dataclass(frozen=True)
class EffectResult:
    """One effect with everything that judges it. Ratios are time of arm / time of base: 0.8 is 20 % less
    time."""

    effect: Effect
    arm_label: str
    base_label: str
    verdict: Verdict | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    rounds: int = 0
    method: str = ""
    cpu: tuple[float, float, float] | None = None  # ratio of process CPU time with its interval
    parity: ParityResult | None = None
    memory_bytes: float | None = None
    compile_s: float | None = None  # with nothing compiled yet
    warm_compile_s: float | None = None  # in a timing trial, which finds compiled code on disk
    break_even: float | None = None
    rounds_needed: int | None = None  # of an undecided effect: how many would decide, if the estimate stayed
    outcome: str = ""  # why there is no time: unsupported, inert, failed ...
    note: str = ""
    rulings: tuple[tuple[Claim, str], ...] = ()
    trials: Counts = dataclasses.field(default_factory=dict)  # how those behind it ended, its base's apart

    @property
    def word(self) -> str:
        """What the table says in its verdict column; in brackets the rounds that would decide."""
        if self.outcome or self.verdict is None:
            return self.outcome or "no rounds yet"
        needed = f" ({self.rounds_needed})" if (self.rounds_needed or SHOWN_ROUNDS) < SHOWN_ROUNDS else ""
        return self.verdict.value + needed

    @property
    def parity_ok(self) -> bool:
        """Whether results are known to be the same."""
        return self.parity is not None and self.parity.verdict not in (
            ParityVerdict.DIFFERENT,
            ParityVerdict.UNCHECKED,
        )

    @property
    def parity_text(self) -> str:
        """The parity verdict, with the worst deviation where it matters."""
        if self.parity is None or self.outcome == Outcome.UNSUPPORTED:
            return ""
        worst = self.parity.worst
        if self.parity.verdict is ParityVerdict.DIFFERENT and worst is not None:
            return f"different: {worst.check} {worst.value:.2g} > {worst.bound:.2g}"
        return self.parity.verdict.value.replace("within", "in")


def rounds_of(used: pl.DataFrame, figure: str) -> Rounds:
    """A figure of the used timing trials, ready to be compared."""
    rows = used.select("pack", "round", "generation", "arm", figure).iter_rows()
    return Rounds((Cell(*row) for row in rows), figure)


class Judge:
    """Judges the effects of one sweep against one another, by a column of the table of trials."""

    def __init__(
        self,
        manifest: Manifest,
        cls: type[Workload],
        progress: Progress,
        used: pl.DataFrame,
        figure: str = "ns_per_unit",
        data: Mapping[str, str] | None = None,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        self.data, self.left_out = data or {}, left_out
        self.manifest = manifest
        self.cls = cls
        self.config = workload_config(cls, manifest.sweep.config)
        self.agreement = Agreement(manifest, cls, progress, read_evidence)
        self.progress = progress
        self.times = rounds_of(used, figure)
        self.cpu_times = rounds_of(used.filter(pl.col("cpu_ns_per_unit") > 0), "cpu_ns_per_unit")
        self.peaks = rounds_of(used.filter(pl.col("peak_bytes") > 0), "peak_bytes")
        self.notes: list[str] = []

    def effects(self) -> tuple[EffectResult, ...]:
        """All effects, verdicts corrected for their number."""
        counted = [effect for effect in self.manifest.effects if self._why_no_time(effect) is None]
        parities = {effect.id: self.agreement.of(effect) for effect in self.manifest.effects}
        withheld = {effect.id: Verdict.FEWER_UNITS for effect in counted if self._did_less(effect)}
        withheld |= {
            name: Verdict.DIFFERENT
            for name, found in parities.items()
            if found.verdict is ParityVerdict.DIFFERENT
        }
        decided = decide(self.times, counted, withheld, math.log1p(self.manifest.sweep.margin))
        if decided.floor:
            apart = math.expm1(decided.floor)
            self.notes.append(
                f"two equal arms lie within {apart:.2%} of one another: no smaller effect is called"
            )
        return tuple(
            self._result(
                effect, parities[effect.id], decided.estimates.get(effect.id), decided.verdicts.get(effect.id)
            )
            for effect in self.manifest.effects
        )

    def _result(
        self, effect: Effect, judged: ParityResult, found: Estimate | None, verdict: Judgement | None
    ) -> EffectResult:
        arm, base = (self.manifest.arm(name) for name in effect.pairs[0])
        outcome = self._why_no_time(effect)
        ratio = math.exp(found.log_ratio) if found else None
        bounds = (
            (math.exp(found.interval.low), math.exp(found.interval.high))
            if found and found.interval
            else None
        )
        result = EffectResult(
            effect=effect,
            arm_label=arm.label,
            base_label=base.label,
            verdict=verdict.verdict if verdict else None,
            ratio=ratio,
            low=bounds[0] if bounds else None,
            high=bounds[1] if bounds else None,
            p=found.p if found else None,
            rounds=found.n if found else 0,
            method=found.method if found else "",
            cpu=self._cpu(effect) if found else None,
            parity=judged,
            memory_bytes=self._memory(effect),
            compile_s=self._cold_compile_s(arm.id) if found and not effect.contrast else None,
            warm_compile_s=self._median(arm.id, "compile_s") if found and not effect.contrast else None,
            break_even=(
                self._break_even(arm.id, base.id)
                if found and verdict and verdict.verdict is Verdict.FASTER and not effect.contrast
                else None
            ),
            rounds_needed=verdict.rounds if verdict else None,
            outcome=outcome[0] if outcome else "",
            note=outcome[1] if outcome else self._note(arm, judged, verdict),
        )
        claims = (
            [] if effect.contrast else self._claims(arm, base)
        )  # a report's claim is about one pair of arms
        rulings = tuple((claim, self._ruling(claim, result, found)) for claim in claims)
        return dataclasses.replace(result, rulings=rulings)

    def _cpu(self, effect: Effect) -> tuple[float, float, float] | None:
        """The effect in process CPU time: on a shared host it holds still where wall time does not."""
        ratios = self.cpu_times.log_ratios(effect)
        found = estimate_effect(ratios, 1, self.cpu_times.variance(effect)) if len(ratios) else None
        if found is None or found.interval is None:
            return None
        return math.exp(found.log_ratio), math.exp(found.interval.low), math.exp(found.interval.high)

    def _why_no_time(self, effect: Effect) -> tuple[str, str] | None:
        """Outcome and reason of an arm that has no time to compare."""
        for arm in effect.weights:
            ok = [record for record in self._timings(arm) if record.outcome is Outcome.OK]
            bad = [
                record
                for record in [*self._timings(arm), *self._others(arm)]
                if record.outcome is not Outcome.OK
            ]
            if bad and not ok:
                reason = bad[0].failure.message.partition("\n")[0] if bad[0].failure else ""
                if not effect.contrast and all(arm != own for own, _ in effect.pairs):
                    return (
                        f"{BASE}{bad[0].outcome.value}",
                        f"its base {self.manifest.arm(arm).label}: {reason}",
                    )
                return bad[0].outcome.value, reason
        if apart := differing_data(self.data, effect.weights):
            return OTHER_DATA, apart
        if len(effect.pairs) == 1 and not effect.contrast and (witness := self._unmoved_witness(effect)):
            return Outcome.INERT.value, f"{witness} is the same with and without it"
        return None

    def _did_less(self, effect: Effect) -> bool:
        """Whether timed jobs of the arm ended with fewer units than those of its base."""
        if self.cls.shape != "job":
            return False  # iterations of steps are counted by cadence, which levels may change
        units = [[(self._median(name, "units") or 0.0) for name in pair] for pair in effect.pairs]
        return any(arm < base * (1 - 1e-9) for arm, base in units)

    def _unmoved_witness(self, effect: Effect) -> str | None:
        """The counter that should have changed and did not: the level provably does nothing here."""
        arm, base = effect.pairs[0]
        counters = [self.counters_of(name) for name in (arm, base)]
        level = self.agreement.levels(self.manifest.arm(arm)).get(effect.toggle)
        if level is None or level.witness is None or None in counters:
            return None
        with_it, without_it = (found.get(level.witness) for found in counters if found is not None)
        return level.witness if with_it is not None and with_it == without_it else None

    def _note(self, arm: Arm, judged: ParityResult, verdict: Judgement | None) -> str:
        records = [record for record in self._timings(arm.id) if record.outcome is Outcome.OK]
        notes = (
            [judged.reason]
            if judged.verdict in (ParityVerdict.DIFFERENT, ParityVerdict.UNCHECKED) and judged.reason
            else []
        )
        if verdict and verdict.reason:
            notes.append(verdict.reason)
        unsettled = [record for record in records if not record.settled]
        if len(unsettled) * 2 > len(records):
            notes.append(
                f"iterations did not settle in {len(unsettled)} of {len(records)} rounds"
                f" ({unsettled[0].alarm or 'warm-up'})"
            )
        return "; ".join(notes)

    def _claims(self, arm: Arm, base: Arm) -> list[Claim]:
        """Claims about exactly the levels that set the arm apart from its base."""
        moved = {name: value for name, value in arm.levels.items() if value != base.levels[name]}
        claims = [claim for claim in self.cls.claims if claim.speaks_of(self.config)]
        about = [claim for claim in claims if any(dict(levels) == moved for levels in claim.arms)]
        return [claim for claim in about if claim.against.items() <= base.levels.items()]

    def _ruling(self, claim: Claim, result: EffectResult, found: Estimate | None) -> str:
        if in_the_way := claim_refusals.obstacles(claim, self.cls.toggles, self.device()):
            return f"{Ruling.NOT_MEASURABLE.value}: {claim_refusals.obstacle_text(in_the_way)}"
        if result.outcome:
            return f"{Ruling.UNDECIDED.value}: {result.outcome}"
        if result.verdict is Verdict.DIFFERENT:
            return f"{Ruling.UNDECIDED.value}: the arm computes something different"
        holds = None
        if claim.kind == "memory":
            found = estimate_effect(self.peaks.log_ratios(result.effect))
        elif claim.kind == "predicate":
            holds = self._holds(claim, result.effect.pairs[0][0])
        return rule_claim(
            claim.kind, claim.low, claim.high, claim.word, found.interval if found else None, holds=holds
        ).value

    def _holds(self, claim: Claim, arm: str) -> bool | None:
        """Whether the counter or number that a predicate speaks of lies within its bounds."""
        value = self.figure_of(arm, claim.figure)
        if value is None:
            return None
        return (claim.low is None or value >= claim.low) and (claim.high is None or value <= claim.high)

    def figure_of(self, arm: str, figure: str | None) -> float | None:
        """What a claim's figure is for an arm; None where it was not measured."""
        timings = [record for record in self._timings(arm) if record.outcome is Outcome.OK]
        return claim_refusals.figure_value(figure or "", functools.partial(self._counted, arm), timings)

    def _counted(self, arm: str, name: str) -> float | None:
        """A counter of an arm, a number of its evidence, or whether it kept the reference's results."""
        if name == claim_refusals.RESULTS_KEPT:
            return self._results_kept(arm)
        value = (self.counters_of(arm) or {}).get(name)
        if value is None and (evidence := self.evidence_of(arm)):
            value = evidence.numbers.get(name)
        return value

    def _results_kept(self, arm: str) -> float | None:
        """1 where an arm's results are those of the first reference as far as its levels allow, 0 where they
        differ."""
        reference = next(iter(self.manifest.sweep.references.values()))
        verdict = self.agreement.between(arm, reference).verdict
        return None if verdict is ParityVerdict.UNCHECKED else float(verdict is not ParityVerdict.DIFFERENT)

    def device(self) -> Device:
        """The device that the trials ran on, as they recorded it."""
        for found in self.progress.other.values():
            if facts := found.record.environment.get("device"):
                return Device(**{**facts, "capability": tuple(facts["capability"])})
        return Device()

    def _break_even(self, arm: str, base: str) -> float | None:
        """Iterations after which the arm's set-up and its compilation, with nothing compiled yet, are
        repaid."""
        found = [self._timings(name) for name in (arm, base)]
        cold = [self._cold_compile_s(name) or 0.0 for name in (arm, base)]
        one_off = [
            median([r.setup_s + r.first_iteration_s + max(0.0, compile_s - r.compile_s) for r in records])
            for records, compile_s in zip(found, cold, strict=True)
        ]
        each = [median([r.region_ns / 1e9 / max(r.iterations, 1) for r in records]) for records in found]
        return break_even(one_off[0], one_off[1], each[0], each[1])

    def bound_by(self, arm: str) -> str | None:
        """Whether an arm waits for its host or its device; None where the device's work was not seen."""
        records = [
            record for record in self._timings(arm) if record.outcome is Outcome.OK and record.units > 0
        ]
        wall_ns = median([record.ns_per_unit for record in records]) if records else None
        return bound_by((self.counters_of(arm) or {}).get("device_busy_ns"), wall_ns)

    def _cold_compile_s(self, arm: str) -> float | None:
        """Seconds of compilation in the counting trial, which starts with nothing compiled."""
        counted = (self.counters_of(arm) or {}).get("compile_s")
        return counted if counted is not None else self._median(arm, "compile_s")

    def _memory(self, effect: Effect) -> float | None:
        """Median over the pairs of the arm's peak memory less the base's, in bytes; none of an
        interaction."""
        if differing_data(self.data, effect.weights):
            return None
        if effect.contrast:
            peaks = {arm: self._median(arm, "peak_bytes") for arm in effect.contrast}
            whole = (
                sum(weight for weight in effect.contrast.values() if weight > 0) < 1.5
                and None not in peaks.values()
            )
            return (
                sum(weight * (peaks[arm] or 0.0) for arm, weight in effect.contrast.items())
                if whole
                else None
            )
        differences = []
        for arm, base in effect.pairs:
            peaks = [self._median(name, "peak_bytes") for name in (arm, base)]
            if peaks[0] is not None and peaks[1] is not None:
                differences.append(peaks[0] - peaks[1])
        return median(differences) if differences else None

    def _median(self, arm: str, field: str) -> float | None:
        values = [
            float(getattr(record, field)) for record in self._timings(arm) if record.outcome is Outcome.OK
        ]
        return median(values) if values else None

    def _timings(self, arm: str) -> list[TrialRecord]:
        latest = [attempts[max(attempts)] for attempts in self.progress.timing.values() if attempts]
        found = [trials[arm] for trials in latest if arm in trials]
        return [one.record for one in found if str(one.folder) not in self.left_out]

    def _others(self, arm: str) -> list[TrialRecord]:
        return [found.record for (name, _), found in self.progress.other.items() if name == arm]

    def counters_of(self, arm: str) -> Mapping[str, float | None] | None:
        """What the arm's trials counted; None without a counting trial."""
        found = self.progress.other.get((arm, Kind.COUNTING))
        if found is None or found.record.outcome is not Outcome.OK:
            return None
        return counters_of(
            found.record, [record for record in self._timings(arm) if record.outcome is Outcome.OK]
        )

    def evidence_of(self, arm: str) -> Evidence | None:
        """What the arm's evidence trial kept; None without one."""
        return self.agreement.evidence(arm)
