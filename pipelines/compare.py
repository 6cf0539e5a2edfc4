"""Table -> effects with intervals and verdicts, parity, rulings. Reads files of the stages before it, measures nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median

import polars as pl

from pipelines.files import write_parquet
from pipelines.judge import EffectResult, Judge
from pipelines.progress import read_progress
from pipelines.records import Arm, Manifest, Outcome, SweepFolder
from workloads import registry
from workloads.errors import RecordError


@dataclass(frozen=True)
class ArmResult:
    """One arm over all rounds: median time per unit in ns, largest peak memory, and outcomes other than ok."""

    label: str
    rounds: int
    ns_per_unit: float | None
    peak_bytes: int | None
    outcomes: str


@dataclass(frozen=True)
class Reference:
    """The arm that the sweep's numbers are read against."""

    name: str
    ns_per_unit: float
    rounds: int


@dataclass(frozen=True)
class Comparison:
    """The answer of a sweep."""

    name: str
    unit: str
    margin: float
    reference: Reference | None
    effects: tuple[EffectResult, ...]
    arms: tuple[ArmResult, ...]
    notes: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether an arm that could have run has no time, or changed results."""
        bad = {Outcome.FAILED.value, Outcome.TIMEOUT.value, ""}
        return any(result.ratio is None and result.outcome in bad for result in self.effects)


def compare(folder: SweepFolder, manifest: Manifest, trials: pl.DataFrame) -> Comparison:
    """Judge every effect of the manifest and write `tables/effects.parquet`.

    Raises
    ------
    RecordError
        Records that must not be mixed: their GPU, torch or data differ.
    """
    progress = read_progress(folder, manifest)
    cls = registry.find(manifest.sweep.workload)
    used = trials.filter(pl.col("used") & (pl.col("outcome") == Outcome.OK.value))
    _refuse_mixtures(used)
    judge = Judge(manifest, cls, progress, used)
    effects = judge.effects()
    arms = tuple(_arm_result(arm, trials, used) for arm in manifest.arms)
    comparison = Comparison(
        name=manifest.sweep.name,
        unit=cls.unit,
        margin=manifest.sweep.margin,
        reference=_reference(manifest, used),
        effects=effects,
        arms=arms,
        notes=(*_disturbance(used), *judge.notes, *(f"skipped: {message}" for message in progress.damaged)),
    )
    write_parquet(folder.tables_dir / "effects.parquet", pl.DataFrame([_effect_row(result) for result in effects]))
    return comparison


def _disturbance(used: pl.DataFrame) -> list[str]:
    """One line where a good part of the trials was disturbed."""
    reasons = [reason for reason in used["disturbed"].to_list() if reason]
    if len(reasons) * 4 < used.height or not reasons:
        return []
    return [
        f"{len(reasons)} of {used.height} timing trials were disturbed, the last by: {reasons[-1]}; "
        "pairing within rounds removes drift, not all of this: measure on a quiet machine before you publish"
    ]


def _refuse_mixtures(used: pl.DataFrame) -> None:
    different = used["keys"].unique().sort().to_list()
    if len(different) > 1:
        raise RecordError(
            f"records of different machines, versions or data cannot be compared: [{different[0]}] and [{different[1]}]; "
            "run the sweep command again to measure all rounds in one place"
        )


def _reference(manifest: Manifest, used: pl.DataFrame) -> Reference | None:
    name, arm = next(iter(manifest.sweep.references.items()))
    times = used.filter(pl.col("arm") == arm)["ns_per_unit"].to_list()
    return Reference(name, median(times), len(times)) if times else None


def _arm_result(arm: Arm, trials: pl.DataFrame, used: pl.DataFrame) -> ArmResult:
    own = used.filter(pl.col("arm") == arm.id)
    outcomes = Counter(trials.filter((pl.col("arm") == arm.id) & (pl.col("outcome") != "ok"))["outcome"].to_list())
    times = own["ns_per_unit"].to_list()
    peaks = own["peak_bytes"].to_list()
    words = ", ".join(f"{count}x {outcome}" for outcome, count in outcomes.items() if outcome != Outcome.UNSUPPORTED)
    return ArmResult(arm.label, len(times), median(times) if times else None, max(peaks) if peaks else None, words)


def _effect_row(result: EffectResult) -> dict[str, object]:
    judged = result.parity
    return {
        "id": result.effect.id,
        "design": result.effect.design,
        "toggle": result.effect.toggle,
        "level": result.effect.level,
        "also": ", ".join(result.effect.also),
        "arm": result.arm_label,
        "base": result.base_label,
        "verdict": result.verdict.value if result.verdict else None,
        "outcome": result.outcome,
        "ratio": result.ratio,
        "low": result.low,
        "high": result.high,
        "p": result.p,
        "rounds": result.rounds,
        "method": result.method,
        "parity": judged.verdict.value if judged else None,
        "parity_worst": judged.worst.value if judged and judged.worst else None,
        "parity_where": f"{judged.worst.check} {judged.worst.where}" if judged and judged.worst else None,
        "memory_bytes": result.memory_bytes,
        "compile_s": result.compile_s,
        "break_even_iterations": result.break_even,
        "rulings": "; ".join(f"{claim.section}: {ruling}" for claim, ruling in result.rulings),
        "note": result.note,
    }
