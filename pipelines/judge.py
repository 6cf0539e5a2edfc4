"""Judge every effect of a sweep: estimate, verdict, parity, memory, compile cost, rulings of claims."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import polars as pl

from pipelines.config import workload_config
from pipelines.measure import parity
from pipelines.measure.parity import ParityResult, ParityVerdict
from pipelines.measure.statistics import Estimate, Spread, estimate, residual_spread
from pipelines.measure.steady import break_even
from pipelines.measure.verdicts import Judged, Ruling, Verdict, decide_verdicts, rule_claim
from pipelines.progress import Progress
from pipelines.records import Arm, Effect, Kind, Manifest, Outcome, TrialRecord, read_evidence
from workloads.api import Claim, Device, Evidence, Level, Toggle, Workload
from workloads.errors import RecordError

SHOWN_ROUNDS = 100
"""An undecided effect that needs more rounds than this is not worth deciding."""


@dataclass(frozen=True)
class EffectResult:
    """One effect with everything that judges it. Ratios are time of arm / time of base: 0.8 is 20 % less time."""

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
    parity: ParityResult | None = None
    memory_bytes: float | None = None
    compile_s: float | None = None
    break_even: float | None = None
    rounds_needed: int | None = None  # of an undecided effect: how many would decide, if the estimate stayed
    outcome: str = ""  # why there is no time: unsupported, inert, failed ...
    note: str = ""
    rulings: tuple[tuple[Claim, str], ...] = ()

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
        return self.parity is not None and self.parity.verdict not in (ParityVerdict.DIFFERENT, ParityVerdict.UNCHECKED)

    @property
    def parity_text(self) -> str:
        """The parity verdict, with the worst deviation where it matters."""
        if self.parity is None or self.outcome == Outcome.UNSUPPORTED:
            return ""
        worst = self.parity.worst
        if self.parity.verdict is ParityVerdict.DIFFERENT and worst is not None:
            return f"different: {worst.check} {worst.value:.2g} > {worst.bound:.2g}"
        return self.parity.verdict.value.replace("within", "in")


class Rounds:
    """A positive figure of the used timing trials by pack, round and arm."""

    def __init__(self, used: pl.DataFrame, figure: str) -> None:
        self.rounds: dict[str, dict[int, dict[str, float]]] = {}
        for pack, number, arm, value in used.select("pack", "round", "arm", figure).iter_rows():
            if not value > 0:
                raise RecordError(
                    f"{figure} of arm {arm} in round {number} of pack {pack} is {value}; delete that trial's folder"
                )
            self.rounds.setdefault(pack, {}).setdefault(number, {})[arm] = value

    def log_ratios(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """One value for each round that has all arms of `pairs`: the mean log ratio of its pairs."""
        found = []
        for rounds in self.rounds.values():
            for times in rounds.values():
                if all(arm in times and base in times for arm, base in pairs):
                    found.append(float(np.mean([math.log(times[arm] / times[base]) for arm, base in pairs])))
        return np.asarray(found)

    def spread(self) -> Spread | None:
        """Variance of log times pooled over the sweep: each pack's arms that are there in every one of its rounds."""
        tables = []
        for rounds in self.rounds.values():
            complete = sorted(set.intersection(*(set(times) for times in rounds.values())))
            tables.append(np.log([[times[arm] for times in rounds.values()] for arm in complete]))
        return residual_spread(*(table for table in tables if table.ndim == 2 and min(table.shape) > 1))


class Judge:
    """Judges the effects of one sweep against one another."""

    def __init__(self, manifest: Manifest, cls: type[Workload], progress: Progress, used: pl.DataFrame) -> None:
        self.manifest = manifest
        self.cls = cls
        self.config = workload_config(cls, manifest.sweep.config)
        self.progress = progress
        self.times = Rounds(used, "ns_per_unit")
        self.peaks = Rounds(used.filter(pl.col("peak_bytes") > 0), "peak_bytes")
        self.toggles: dict[str, Toggle] = {toggle.name: toggle for toggle in cls.toggles}
        self.notes: list[str] = []
        self._evidence: dict[str, Evidence | None] = {}

    def effects(self) -> tuple[EffectResult, ...]:
        """All effects, verdicts corrected for their number (Holm 1979)."""
        counted = [effect for effect in self.manifest.effects if self._why_no_time(effect) is None]
        ratios = {effect.id: self.times.log_ratios(effect.pairs) for effect in counted}
        comparisons = sum(len(values) > 0 for values in ratios.values())
        spread = self.times.spread()
        # A main effect averages over pairs, so the spread of single pairs would overstate its error.
        estimates = {
            effect.id: estimate(ratios[effect.id], comparisons, spread if len(effect.pairs) == 1 else None)
            for effect in counted
            if len(ratios[effect.id])
        }
        parities = {effect.id: self._parity(effect) for effect in self.manifest.effects}
        withheld = {name: Verdict.DIFFERENT for name in estimates if parities[name].verdict is ParityVerdict.DIFFERENT}
        verdicts = decide_verdicts(estimates, withheld, math.log1p(self.manifest.sweep.margin))
        return tuple(
            self._result(effect, parities[effect.id], estimates.get(effect.id), verdicts.get(effect.id))
            for effect in self.manifest.effects
        )

    def _result(self, effect: Effect, judged: ParityResult, found: Estimate | None, verdict: Judged | None) -> EffectResult:
        arm, base = (self.manifest.arm(name) for name in effect.pairs[0])
        outcome = self._why_no_time(effect)
        ratio = math.exp(found.log_ratio) if found else None
        bounds = (math.exp(found.interval.low), math.exp(found.interval.high)) if found and found.interval else None
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
            parity=judged,
            memory_bytes=self._memory(effect),
            compile_s=self._median(arm.id, "compile_s") if found else None,
            break_even=self._break_even(arm.id, base.id) if found and verdict and verdict.verdict is Verdict.FASTER else None,
            rounds_needed=verdict.rounds if verdict else None,
            outcome=outcome[0] if outcome else "",
            note=outcome[1] if outcome else self._note(arm, judged, verdict),
        )
        rulings = tuple((claim, self._ruling(claim, result, found)) for claim in self._claims(arm, base))
        return dataclasses.replace(result, rulings=rulings)

    def _why_no_time(self, effect: Effect) -> tuple[str, str] | None:
        """Outcome and reason of an arm that has no time to compare."""
        for arm in dict.fromkeys(name for pair in effect.pairs for name in pair):
            ok = [record for record in self._timings(arm) if record.outcome is Outcome.OK]
            bad = [record for record in [*self._timings(arm), *self._others(arm)] if record.outcome is not Outcome.OK]
            if bad and not ok:
                reason = bad[0].failure.message.partition("\n")[0] if bad[0].failure else ""
                return bad[0].outcome.value, reason
        if len(effect.pairs) == 1 and (witness := self._unmoved_witness(effect)):
            return Outcome.INERT.value, f"{witness} is the same with and without it"
        return None

    def _unmoved_witness(self, effect: Effect) -> str | None:
        """The counter that should have changed and did not: the level provably does nothing here."""
        arm, base = effect.pairs[0]
        counters = [self._counters(name) for name in (arm, base)]
        level = self._levels(self.manifest.arm(arm)).get(effect.toggle)
        if level is None or level.witness is None or None in counters:
            return None
        with_it, without_it = (found.get(level.witness) for found in counters if found is not None)
        return level.witness if with_it is not None and with_it == without_it else None

    def _parity(self, effect: Effect) -> ParityResult:
        """The arm against the sweep's reference, in the loosest class of the levels that set them apart."""
        arm = self.manifest.arm(effect.pairs[0][0])
        name = effect.reference or next(iter(self.manifest.sweep.references))
        reference = self.manifest.arm(self.manifest.sweep.references[name])
        levels = [
            dataclasses.replace(level, parity=level.parity_with(self.config, arm.levels))
            for name, level in self._levels(arm).items()
            if arm.levels[name] != reference.levels[name]
        ]
        loosest, bounds = parity.loosest(levels, self.cls.checks)
        units = [self._units(one.id) for one in (reference, arm)]
        found = [self._evidence_of(one.id) for one in (reference, arm)]
        return parity.judge(found[0], found[1], self.cls.checks, loosest, bounds, units_expected=units[0], units_done=units[1])

    def _note(self, arm: Arm, judged: ParityResult, verdict: Judged | None) -> str:
        records = [record for record in self._timings(arm.id) if record.outcome is Outcome.OK]
        notes = [judged.reason] if judged.verdict in (ParityVerdict.DIFFERENT, ParityVerdict.UNCHECKED) and judged.reason else []
        if verdict and verdict.reason:
            notes.append(verdict.reason)
        unsettled = [record for record in records if not record.settled]
        if len(unsettled) * 2 > len(records):
            notes.append(
                f"iterations did not settle in {len(unsettled)} of {len(records)} rounds ({unsettled[0].alarm or 'warm-up'})"
            )
        return "; ".join(notes)

    def _claims(self, arm: Arm, base: Arm) -> list[Claim]:
        """Claims about exactly the levels that set the arm apart from its base."""
        moved = {name: value for name, value in arm.levels.items() if value != base.levels[name]}
        about = [claim for claim in self.cls.claims if any(dict(levels) == moved for levels in claim.arms)]
        return [claim for claim in about if claim.against.items() <= base.levels.items()]

    def _ruling(self, claim: Claim, result: EffectResult, found: Estimate | None) -> str:
        if reason := claim.unsupported(self._device()):
            return f"{Ruling.NOT_MEASURABLE.value}: {reason}"
        if result.outcome:
            return f"{Ruling.NOT_MEASURABLE.value}: {result.outcome}"
        if result.verdict is Verdict.DIFFERENT:
            return f"{Ruling.UNDECIDED.value}: the arm computes something different"
        holds = None
        if claim.kind == "memory":
            found = estimate(self.peaks.log_ratios(result.effect.pairs))
        elif claim.kind == "predicate":
            holds = self._holds(claim, result.effect.pairs[0][0])
        return rule_claim(claim.kind, claim.low, claim.high, claim.word, found.interval if found else None, holds=holds).value

    def _holds(self, claim: Claim, arm: str) -> bool | None:
        """Whether the counter or number that a predicate speaks of lies within its bounds."""
        value = (self._counters(arm) or {}).get(claim.figure or "")
        if value is None and (evidence := self._evidence_of(arm)):
            value = evidence.numbers.get(claim.figure or "")
        if value is None:
            return None
        return (claim.low is None or value >= claim.low) and (claim.high is None or value <= claim.high)

    def _device(self) -> Device:
        """The device that the trials ran on, as they recorded it."""
        for found in self.progress.other.values():
            if facts := found.record.environment.get("device"):
                return Device(**{**facts, "capability": tuple(facts["capability"])})
        return Device()

    def _break_even(self, arm: str, base: str) -> float | None:
        """Iterations after which the arm's set-up and compilation are repaid."""
        found = [self._timings(name) for name in (arm, base)]
        one_off = [median([r.setup_s + r.first_iteration_s for r in records]) for records in found]
        each = [median([r.region_ns / 1e9 / max(r.iterations, 1) for r in records]) for records in found]
        return break_even(one_off[0], one_off[1], each[0], each[1])

    def _memory(self, effect: Effect) -> float | None:
        """Median over the pairs of the arm's peak memory less the base's, in bytes."""
        differences = []
        for arm, base in effect.pairs:
            peaks = [self._median(name, "peak_bytes") for name in (arm, base)]
            if peaks[0] is not None and peaks[1] is not None:
                differences.append(peaks[0] - peaks[1])
        return median(differences) if differences else None

    def _median(self, arm: str, field: str) -> float | None:
        values = [float(getattr(record, field)) for record in self._timings(arm) if record.outcome is Outcome.OK]
        return median(values) if values else None

    def _timings(self, arm: str) -> list[TrialRecord]:
        latest = [attempts[max(attempts)] for attempts in self.progress.timing.values() if attempts]
        return [trials[arm].record for trials in latest if arm in trials]

    def _others(self, arm: str) -> list[TrialRecord]:
        return [found.record for (name, _), found in self.progress.other.items() if name == arm]

    def _levels(self, arm: Arm) -> dict[str, Level]:
        return {name: self.toggles[name].level(value) for name, value in arm.levels.items()}

    def _counters(self, arm: str) -> Mapping[str, float | None] | None:
        found = self.progress.other.get((arm, Kind.COUNTING))
        return found.record.counters if found and found.record.outcome is Outcome.OK else None

    def _units(self, arm: str) -> float | None:
        found = self.progress.other.get((arm, Kind.EVIDENCE))
        return found.record.units if found and found.record.outcome is Outcome.OK else None

    def _evidence_of(self, arm: str) -> Evidence | None:
        if arm not in self._evidence:
            found = self.progress.other.get((arm, Kind.EVIDENCE))
            self._evidence[arm] = None
            if found and found.record.outcome is Outcome.OK:
                try:
                    self._evidence[arm] = read_evidence(found.folder)
                except RecordError as error:
                    self.notes.append(f"skipped: {error}")
        return self._evidence[arm]
