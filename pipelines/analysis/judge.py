"""Judge every effect of a sweep: estimate, verdict, parity, memory, compile cost, rulings of claims."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median

import polars as pl

from pipelines.analysis import claim_refusals
from pipelines.analysis.arm_records import ArmRecords
from pipelines.analysis.comparable import differing_data
from pipelines.analysis.counters import bound_by
from pipelines.analysis.decisions import Decisions, decide
from pipelines.analysis.exclusions import Exclusion, Exclusions
from pipelines.analysis.outcomes import Counts
from pipelines.config.validation import workload_config
from pipelines.parity.comparison import ParityResult, ParityVerdict
from pipelines.parity.evidence import Agreement
from pipelines.statistics.estimates import Estimate, break_even, estimate_effect
from pipelines.statistics.log_ratios import Cell, Rounds
from pipelines.statistics.verdicts import Judgement, Ruling, Verdict, rule_claim
from pipelines.store.progress import Progress
from pipelines.store.records import Arm, Effect, Manifest, Outcome, read_evidence
from workloads.api import Claim, Device, Evidence, Workload

SHOWN_ROUNDS = 100
"""An undecided effect that needs more rounds than this is not worth deciding."""


@dataclass(frozen=True)
class EffectResult:
    """One effect and all that judges it. Ratios are time of arm / time of base: 0.8 is 20 % less time."""

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
    trials: Counts = field(default_factory=dict)  # how those behind it ended, its base's apart

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
    """Judges the effects of one sweep against one another, by a column of the table of trials.

    Parameters
    ----------
    used : the timing trials that count
    figure : the column
    data : digest of the data that each arm (id) worked on
    left_out : folders of timing trials that do not count
    """

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
        self.manifest, self.cls = manifest, cls
        self.config = workload_config(cls, manifest.sweep.config)
        self.agreement = Agreement(manifest, cls, progress, read_evidence)
        self.records = ArmRecords(progress, manifest.packs, left_out)
        self.data = data or {}
        self.exclusions = Exclusions(manifest, self.records, self.agreement, self.data)
        self.times = rounds_of(used, figure)
        self.cpu_times = rounds_of(used.filter(pl.col("cpu_ns_per_unit") > 0), "cpu_ns_per_unit")
        self.peaks = rounds_of(used.filter(pl.col("peak_bytes") > 0), "peak_bytes")
        self.notes: list[str] = []

    def effects(self) -> tuple[EffectResult, ...]:
        """All effects, verdicts corrected for their number."""
        effects = self.manifest.effects
        excluded = {effect.id: self.exclusions.of_effect(effect) for effect in effects}
        parities = {effect.id: self.agreement.of(effect) for effect in effects}
        compared = [effect for effect in effects if excluded[effect.id] is None]
        withheld = {effect.id: Verdict.FEWER_UNITS for effect in compared if self._did_less(effect)}
        withheld |= {
            effect.id: Verdict.DIFFERENT
            for effect in effects
            if parities[effect.id].verdict is ParityVerdict.DIFFERENT
        }
        decisions = decide(self.times, compared, withheld, math.log1p(self.manifest.sweep.measure.margin))
        if decisions.floor:
            apart = math.expm1(decisions.floor)
            self.notes.append(
                f"placebos, which equal the reference, show up to {apart:.2%}: no smaller effect is called"
            )
        return tuple(
            self._result(effect, excluded[effect.id], parities[effect.id], decisions) for effect in effects
        )

    def _result(
        self, effect: Effect, excluded: Exclusion | None, parity: ParityResult, decisions: Decisions
    ) -> EffectResult:
        arm, base = (self.manifest.arm(name) for name in effect.pairs[0])
        estimate, judgement = decisions.estimates.get(effect.id), decisions.verdicts.get(effect.id)
        result = EffectResult(
            effect=effect,
            arm_label=arm.label,
            base_label=base.label,
            verdict=judgement.verdict if judgement else None,
            parity=parity,
            memory_bytes=self._memory(effect),
            rounds_needed=judgement.rounds if judgement else None,
            outcome=excluded.outcome if excluded else "",
            note=excluded.reason if excluded else self._note(arm, parity, judgement),
        )
        if estimate:
            result = self._with_times(result, estimate)
        if effect.contrast:  # what compiling costs, and a report's claim, are about one pair of arms
            return result
        if estimate:
            result = self._with_compiling(result)
        rulings = tuple((claim, self._ruling(claim, result, estimate)) for claim in self._claims(arm, base))
        return replace(result, rulings=rulings)

    def _with_times(self, result: EffectResult, estimate: Estimate) -> EffectResult:
        low, high = estimate.interval.ratios if estimate.interval else (None, None)
        return replace(
            result,
            ratio=math.exp(estimate.log_ratio),
            low=low,
            high=high,
            p=estimate.p,
            rounds=estimate.n,
            method=estimate.method,
            cpu=self._cpu(result.effect),
        )

    def _with_compiling(self, result: EffectResult) -> EffectResult:
        arm, base = result.effect.pairs[0]
        return replace(
            result,
            compile_s=self.records.cold_compile_s(arm),
            warm_compile_s=self.records.median(arm, "compile_s"),
            break_even=self._break_even(arm, base) if result.verdict is Verdict.FASTER else None,
        )

    def _cpu(self, effect: Effect) -> tuple[float, float, float] | None:
        """The effect in process CPU time: on a shared host it holds still where wall time does not."""
        ratios = self.cpu_times.log_ratios(effect)
        if not len(ratios):
            return None
        cpu = estimate_effect(ratios, 1, self.cpu_times.variance(effect))
        return (math.exp(cpu.log_ratio), *cpu.interval.ratios) if cpu.interval else None

    def _did_less(self, effect: Effect) -> bool:
        """Whether timed jobs of the arm ended with fewer units than those of its base."""
        if self.cls.shape != "job":
            return False  # iterations of steps are counted by cadence, which levels may change
        units = [[(self.records.median(name, "units") or 0.0) for name in pair] for pair in effect.pairs]
        return any(arm < base * (1 - 1e-9) for arm, base in units)

    def _note(self, arm: Arm, parity: ParityResult, judgement: Judgement | None) -> str:
        doubtful = parity.verdict in (ParityVerdict.DIFFERENT, ParityVerdict.UNCHECKED)
        notes = [parity.reason if doubtful else "", judgement.reason if judgement else ""]
        return "; ".join(note for note in [*notes, self._unsettled(arm.id)] if note)

    def _unsettled(self, arm: str) -> str:
        """A note where most timing trials of an arm began before their iterations took equally long."""
        records = self.records.timed(arm)
        unsettled = [record for record in records if not record.settled]
        if len(unsettled) * 2 <= len(records):
            return ""
        why = unsettled[0].alarm or "warm-up"
        return f"iterations did not settle in {len(unsettled)} of {len(records)} rounds ({why})"

    def _claims(self, arm: Arm, base: Arm) -> list[Claim]:
        """Claims about exactly the levels that set the arm apart from its base."""
        moved = {name: value for name, value in arm.levels.items() if value != base.levels[name]}
        claims = [claim for claim in self.cls.claims if claim.speaks_of(self.config)]
        about = [claim for claim in claims if any(dict(levels) == moved for levels in claim.arms)]
        return [claim for claim in about if claim.against.items() <= base.levels.items()]

    def _ruling(self, claim: Claim, result: EffectResult, estimate: Estimate | None) -> str:
        if in_the_way := claim_refusals.obstacles(claim, self.cls.toggles, self.device()):
            return f"{Ruling.NOT_MEASURABLE.value}: {claim_refusals.obstacle_text(in_the_way)}"
        if result.outcome:
            return f"{Ruling.UNDECIDED.value}: {result.outcome}"
        if result.verdict is Verdict.DIFFERENT:
            return f"{Ruling.UNDECIDED.value}: the arm computes something different"
        holds = None
        if claim.kind == "memory":
            estimate = estimate_effect(self.peaks.log_ratios(result.effect))
        elif claim.kind == "predicate":
            holds = self._holds(claim, result.effect.pairs[0][0])
        interval = estimate.interval if estimate else None
        return rule_claim(claim.kind, claim.low, claim.high, claim.word, interval, holds=holds).value

    def _holds(self, claim: Claim, arm: str) -> bool | None:
        """Whether the counter or number that a predicate speaks of lies within its bounds."""
        value = self.figure_of(arm, claim.figure)
        if value is None:
            return None
        return (claim.low is None or value >= claim.low) and (claim.high is None or value <= claim.high)

    def figure_of(self, arm: str, figure: str | None) -> float | None:
        """What a claim's figure is for an arm; None where it was not measured."""
        lookup = functools.partial(self._counted, arm)
        return claim_refusals.figure_value(figure or "", lookup, self.records.timed(arm))

    def _counted(self, arm: str, name: str) -> float | None:
        """A counter of an arm, a number of its evidence, or whether it kept the reference's results."""
        if name == claim_refusals.RESULTS_KEPT:
            return self._results_kept(arm)
        value = (self.records.counters(arm) or {}).get(name)
        if value is None and (evidence := self.evidence_of(arm)):
            value = evidence.numbers.get(name)
        return value

    def _results_kept(self, arm: str) -> float | None:
        """1 where results are the first reference's as far as the levels allow, 0 where they differ."""
        verdict = self.agreement.between(arm, next(iter(self.manifest.sweep.references.values()))).verdict
        return None if verdict is ParityVerdict.UNCHECKED else float(verdict is not ParityVerdict.DIFFERENT)

    def device(self) -> Device:
        """The device that the trials ran on, as they recorded it."""
        return self.records.device()

    def _break_even(self, arm: str, base: str) -> float | None:
        """Iterations that repay the arm's set-up and its compilation with nothing compiled yet."""
        once_s = [self.records.one_off_s(name) or 0.0 for name in (arm, base)]
        each_s = [
            median([r.region_ns / 1e9 / max(r.iterations, 1) for r in self.records.timed(name)])
            for name in (arm, base)
        ]
        return break_even(*once_s, *each_s)

    def bound_by(self, arm: str) -> str | None:
        """Whether an arm waits for its host or its device; None where the device's work was not seen."""
        times_ns = [record.ns_per_unit for record in self.records.timed(arm) if record.units > 0]
        busy_ns = (self.records.counters(arm) or {}).get("device_busy_ns")
        return bound_by(busy_ns, median(times_ns) if times_ns else None)

    def _memory(self, effect: Effect) -> float | None:
        """Median over pairs of the arm's peak memory less the base's, in bytes; None of an interaction."""
        if differing_data(self.data, effect.weights):
            return None
        peaks = {arm: self.records.median(arm, "peak_bytes") for arm in effect.weights}
        if effect.contrast:
            return self._contrast_memory(effect, peaks)
        pairs = [(peaks[arm], peaks[base]) for arm, base in effect.pairs]
        differences = [arm - base for arm, base in pairs if arm is not None and base is not None]
        return median(differences) if differences else None

    @staticmethod
    def _contrast_memory(effect: Effect, peaks: Mapping[str, float | None]) -> float | None:
        known = {arm: peak for arm, peak in peaks.items() if peak is not None}
        # The positive weights of a main effect add up to one, those of an interaction to two.
        is_interaction = sum(weight for weight in effect.contrast.values() if weight > 0) >= 1.5
        if is_interaction or len(known) < len(peaks):
            return None
        return sum(weight * known[arm] for arm, weight in effect.contrast.items())

    def evidence_of(self, arm: str) -> Evidence | None:
        """What the arm's evidence trial kept; None without one."""
        return self.agreement.evidence(arm)
