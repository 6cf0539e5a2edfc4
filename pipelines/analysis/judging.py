"""Judge every effect of a sweep: estimate, verdict, parity, memory, compile cost, rulings of claims."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import median

import polars as pl

from perfsweep.pipelines.analysis.arm_records import ArmRecords
from perfsweep.pipelines.analysis.effect_result import Decisions, EffectResult, decide
from perfsweep.pipelines.analysis.exclusions import Exclusion, Exclusions, HoldingBack, differing_data
from perfsweep.pipelines.analysis.rulings import Ruler, decide_memory
from perfsweep.pipelines.parity.evidence import Agreement
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.statistics.estimates import Apart, break_even
from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds
from perfsweep.pipelines.statistics.verdicts import Judgement, ReasonCode, Verdict
from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.records import Arm, Effect, Manifest, read_evidence
from perfsweep.pipelines.store.schema import declared_by
from perfsweep.pipelines.store.stop_rule import apart


def cells_of(used: pl.DataFrame, figure: str) -> Iterator[Cell]:
    """The values of one figure, such as ns per unit, in the used timing trials: one cell each."""
    plain = pl.lit(None, pl.Float64)
    if figure == "ns_per_unit":
        plain = pl.when(pl.col("lost_ns").is_not_null()).then(pl.col("wall_ns_per_unit"))
    rows = used.select("pack", "round", "server", "arm", figure, plain.alias("plain")).iter_rows()
    return (Cell(*row) for row in rows)


def rounds_of(used: pl.DataFrame, figure: str, apart: Apart | None = None) -> Rounds:
    """The values of one figure by pack, round and arm, ready to be compared."""
    return Rounds(cells_of(used, figure), figure, apart)


class Judge:
    """Judges the effects of one sweep against one another.

    Parameters
    ----------
    used : the timing trials that count
    data : digest of the data that each arm (id) worked on
    left_out : folders of timing trials that do not count
    """

    def __init__(
        self,
        manifest: Manifest,
        progress: Progress,
        used: pl.DataFrame,
        data: Mapping[str, str] | None = None,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        self.manifest, self.declared = manifest, declared_by(manifest, progress.every)
        self.agreement = Agreement(manifest, progress, read_evidence)
        self.records = ArmRecords(progress, manifest.packs, left_out)
        self.device = self.records.device()
        self.used = used
        self.data = self.agreement.sharing(data or {})
        self.exclusions = Exclusions(manifest, self.records, self.agreement, self.data)
        self.times = rounds_of(used, "ns_per_unit", apart(manifest))
        self.holding_back = HoldingBack(manifest, used, self.records)
        self.peaks = rounds_of(used.filter(pl.col("peak_bytes") > 0), "peak_bytes")
        self.peak_bytes = used["peak_bytes"].to_list()
        self.ruler = Ruler(manifest, self.declared, self.records, self.agreement)
        self.notes = [self.ruler.missing] if self.ruler.missing else []

    def effects(self) -> tuple[EffectResult, ...]:
        """All effects, verdicts corrected for their number."""
        effects = self.manifest.effects
        excluded = {effect.id: self.exclusions.of_effect(effect) for effect in effects}
        parities = {effect.id: self.agreement.of(effect) for effect in effects}
        compared = [effect for effect in effects if excluded[effect.id] is None]
        margin = math.log1p(self.manifest.sweep.measure.margin)
        judged = {effect.id: self._withheld(effect, parities[effect.id]) for effect in compared}
        withheld = {name: judgement for name, judgement in judged.items() if judgement}
        decisions = decide(self.times, compared, withheld, margin)
        idle = self.exclusions.idle(compared, parities, decisions.verdicts)
        excluded, decisions = {**excluded, **idle}, decisions.without(idle)
        self.ruler.memory = decide_memory(self.peaks, self.peak_bytes, compared, withheld)
        if decisions.floor:
            shown = f"placebos, which equal the baseline, show up to {math.expm1(decisions.floor):.2%}"
            self.notes.append(f"{shown}: no smaller effect is called")
        return tuple(
            self._result(effect, excluded[effect.id], parities[effect.id], decisions) for effect in effects
        )

    def _withheld(self, effect: Effect, parity: ParityResult) -> Judgement | None:
        """The verdict of an effect whose times are not compared; None if they are."""
        if parity.verdict is ParityVerdict.DIFFERENT:
            return Judgement(Verdict.DIFFERENT, None, code=ReasonCode.RESULTS_DIFFER)
        if self._did_less(effect):
            return Judgement(Verdict.FEWER_UNITS, None, code=ReasonCode.FEWER_UNITS)
        return self.holding_back.of(effect, self.times.estimate(effect).n)

    def _base_name(self, base: Arm) -> str:
        """The name of a base: the sweep's own, which is shorter than its levels."""
        return self.manifest.arm_names[base.id] if "=" in base.label else base.label

    def _result(
        self, effect: Effect, excluded: Exclusion | None, parity: ParityResult, decisions: Decisions
    ) -> EffectResult:
        arm, base = (self.manifest.arm(name) for name in effect.pairs[0])
        estimate, judgement = decisions.estimates.get(effect.id), decisions.verdicts.get(effect.id)
        result = EffectResult(
            effect=effect,
            arm_label=arm.label,
            base_label=self._base_name(base),
            verdict=judgement.verdict if judgement else None,
            code=_code(excluded, judgement),
            parity=parity,
            memory_bytes=self._memory(effect),
            rounds_needed=judgement.rounds if judgement else None,
            outcome=excluded.outcome if excluded else "",
            note=excluded.reason if excluded else self._note(arm, parity, judgement),
            derivation=decisions.derivation(effect, self.times),
            on_gpu=self.on_gpu(arm),
            held_back=judgement.reason if judgement and judgement.verdict is Verdict.HELD_BACK else "",
        )
        if estimate:
            low, high = estimate.interval.ratios if estimate.interval else (None, None)
            result = replace(
                result,
                ratio=math.exp(estimate.log_ratio),
                low=low,
                high=high,
                p=estimate.p,
                rounds=estimate.rounds,
                method=estimate.method,
            )
        if effect.contrast:  # compile cost and claims are about one pair of arms
            return result
        if estimate:
            result = self._with_compiling(result)
        return replace(result, rulings=self.ruler.of_effect(result, estimate, judgement))

    def _with_compiling(self, result: EffectResult) -> EffectResult:
        arm, base = result.effect.pairs[0]
        return replace(
            result,
            compile_s=self.records.cold_compile_s(arm),
            warm_compile_s=self.records.warm_compile_s(arm),
            break_even=self._break_even(arm, base) if result.verdict is Verdict.FASTER else None,
        )

    def _did_less(self, effect: Effect) -> bool:
        """Whether timed jobs of the arm ended with fewer units than those of its base."""
        if self.declared.shape != "job":
            return False  # iterations of steps are counted by cadence, which levels may change
        units = [[(self.records.median(name, "units") or 0.0) for name in pair] for pair in effect.pairs]
        return any(arm < base * (1 - 1e-9) for arm, base in units)

    def _note(self, arm: Arm, parity: ParityResult, judgement: Judgement | None) -> str:
        doubtful = parity.verdict in (ParityVerdict.DIFFERENT, ParityVerdict.UNCHECKED)
        notes = [parity.reason if doubtful else "", judgement.reason if judgement else ""]
        return "; ".join(note for note in [*notes, self._unsettled(arm.id)] if note)

    def _unsettled(self, arm: str) -> str:
        """A note if in most timing trials of an arm iterations were not steady."""
        records = self.records.timed(arm)
        unsettled = [record for record in records if not record.settled]
        if len(unsettled) * 2 <= len(records):
            return ""
        why = unsettled[0].alarm or "warm-up"
        return f"iterations did not settle in {len(unsettled)} of {len(records)} rounds ({why})"

    def _break_even(self, arm: str, base: str) -> float | None:
        """Iterations until the arm has repaid its set-up and its compilation without a cache."""
        once_s = [self.records.one_off_s(name) or 0.0 for name in (arm, base)]
        each_s = [
            median([r.time_ns / 1e9 / max(r.iterations, 1) for r in self.records.timed(name)])
            for name in (arm, base)
        ]
        return break_even(*once_s, *each_s)

    def _memory(self, effect: Effect) -> float | None:
        """Median over rounds of the arm's peak memory minus the base's, in bytes; None for an interaction.

        Rounds that an arm was not measured in do not count: what the base needed there says nothing of it.
        """
        weights = effect.weights
        # The positive weights of a main effect add up to one, those of an interaction to two.
        is_interaction = sum(weight for weight in weights.values() if weight > 0) >= 1.5
        if is_interaction or differing_data(self.data, weights):
            return None
        weight = pl.col("arm").replace_strict(weights, default=None)
        rounds = self.used.filter(weight.is_not_null()).group_by("pack", "round")
        summed = rounds.agg((pl.col("peak_bytes") * weight).sum(), pl.len().alias("arms"))
        differences = summed.filter(pl.col("arms") == len(weights))["peak_bytes"].to_list()
        return median(differences) if differences else None

    def on_gpu(self, arm: Arm) -> str:
        """Words of the table on whether an arm would act on a GPU; empty where it was measured on one."""
        return "" if self.device.type == "cuda" else self.declared.on_gpu(arm)


def _code(excluded: Exclusion | None, judgement: Judgement | None) -> ReasonCode:
    if excluded is not None:
        return ReasonCode.NO_TIME
    return judgement.code if judgement else ReasonCode.NO_RECORDS
