"""Table -> effects with intervals and verdicts, parity, rulings. Reads files of the stages before it,
measures nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import polars as pl

from pipelines.analysis.combinations import Corners, corners
from pipelines.analysis.comparable import unmixed
from pipelines.analysis.counters import Moved, counter_table, moved_counters
from pipelines.analysis.judge import BASE, OTHER_DATA, EffectResult, Judge
from pipelines.analysis.oracles import Quality, judge_quality
from pipelines.analysis.outcomes import Counts, added, outcome_counts
from pipelines.analysis.phases import PhaseShare, phase_table, phases_of
from pipelines.analysis.rulings import RuledClaim, all_rulings, ruling_table
from pipelines.analysis.together import Together, together
from pipelines.plan.power import power
from pipelines.store.files import write_parquet
from pipelines.store.progress import Progress, read_progress
from pipelines.store.records import Arm, Manifest, Outcome, SweepFolder
from workloads import registry


@dataclass(frozen=True)
class ArmResult:
    """One arm over all rounds: median time per unit in ns, largest peak memory, and how many trials ended in
    which way.

    `name` is what the sweep calls it, the label made of its levels where it has no name.
    `iteration_ns` is the median iteration; `phases` say where the time per unit goes, as far as the workload
    marks them. `mfu` is the median share of the device's peak that the workload's formula accounts for, where
    both are known.
    """

    label: str
    rounds: int
    ns_per_unit: float | None
    peak_bytes: int | None
    outcomes: Counts
    iteration_ns: float | None = None
    phases: tuple[PhaseShare, ...] = ()
    moved: tuple[Moved, ...] = ()  # counters that differ from the reference's
    name: str = ""
    mfu: float | None = None


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
    quality: tuple[Quality, ...] = ()
    rulings: tuple[RuledClaim, ...] = ()
    corners: tuple[Corners, ...] = ()
    together: tuple[Together, ...] = ()
    trials: Mapping[str, Counts] = field(
        default_factory=dict
    )  # behind each effect (id), without its bases where it has some

    @property
    def failed(self) -> bool:
        """Whether an arm that could have run has no time, or changed results."""
        bad = {Outcome.FAILED.value, Outcome.TIMEOUT.value, OTHER_DATA, ""}
        return any(r.ratio is None and r.outcome.removeprefix(BASE) in bad for r in self.effects)


def compare(
    folder: SweepFolder, manifest: Manifest, trials: pl.DataFrame, progress: Progress | None = None
) -> Comparison:
    """Judge every effect of the manifest and write `tables/effects.parquet`; `progress` where records are
    read already.

    Raises
    ------
    RecordError
        A record holds a time that cannot be: zero, or negative.
    """
    progress = progress or read_progress(folder, manifest)
    cls = registry.find(manifest.sweep.workload)
    sound = unmixed(trials.filter(pl.col("used") & (pl.col("outcome") == Outcome.OK.value)))
    used = sound.trials
    judge = Judge(manifest, cls, progress, used, data=sound.data, left_out=sound.left_out)
    effects = judge.effects()
    ended = outcome_counts(trials)
    arms, unreadable = _arm_results(folder, judge, trials, used, ended)
    rulings = all_rulings(manifest, effects, judge)
    write_parquet(folder.tables_dir / "rulings.parquet", ruling_table(rulings, manifest, judge.device().name))
    write_parquet(
        folder.tables_dir / "effects.parquet", pl.DataFrame([_effect_row(result) for result in effects])
    )
    return Comparison(
        name=manifest.sweep.name,
        unit=cls.unit,
        margin=manifest.sweep.margin,
        reference=_reference(manifest, used),
        effects=effects,
        arms=arms,
        notes=(
            *_bounds(manifest, judge),
            *_seen(manifest, judge),
            *_isolation(manifest, used),
            *_missing_references(manifest, used),
            *sound.notes,
            *_left_out(manifest, progress),
            *_disturbance(used),
            *_samples(manifest, judge),
            *judge.notes,
            *judge.agreement.notes,
            *_skipped([*progress.damaged, *unreadable]),
        ),
        rulings=rulings,
        trials={result.effect.id: _trials_behind(result, ended) for result in effects},
        quality=judge_quality(short_names(manifest), cls.checks, judge.evidence_of),
        corners=tuple(corners(manifest, used)),
        together=tuple(together(effects)),
    )


def _arm_results(
    folder: SweepFolder, judge: Judge, trials: pl.DataFrame, used: pl.DataFrame, ended: Mapping[str, Counts]
) -> tuple[tuple[ArmResult, ...], list[str]]:
    """Every arm, with its tables of phases and counters written, and the series that could not be read."""
    manifest = judge.manifest
    phases, unreadable = phase_table(trials)
    write_parquet(folder.tables_dir / "phases.parquet", phases)
    counters = {arm.id: judge.counters_of(arm.id) for arm in manifest.arms}
    write_parquet(folder.tables_dir / "counters.parquet", counter_table(manifest.arms, counters))
    first, names = counters[next(iter(manifest.sweep.references.values()))], short_names(manifest)
    arms = tuple(
        replace(
            _arm_result(arm, ended.get(arm.id, {}), used, phases),
            moved=moved_counters(first, counters[arm.id]),
            name=names[arm.id],
        )
        for arm in manifest.arms
    )
    write_parquet(folder.tables_dir / "arms.parquet", _arm_table(manifest, arms))
    return arms, unreadable


NAMED_FILES = 20
"""Unreadable files that are named one by one; more of them have one cause, which the first ones show."""


def _skipped(messages: Sequence[str]) -> list[str]:
    more = len(messages) - NAMED_FILES
    named = [f"skipped: {message}" for message in messages[:NAMED_FILES]]
    return [*named, f"skipped: {more} more files that could not be read"] if more > 0 else named


def _left_out(manifest: Manifest, progress: Progress) -> list[str]:
    """What was measured and does not count, and why."""
    repeated = sum(len(progress.repeated(pack)) for pack in manifest.packs)
    lines = (
        [f"{repeated} rounds were disturbed and measured again; the disturbed attempts do not count"]
        if repeated
        else []
    )
    return lines + [f"{count} records of {why} are left out" for why, count in progress.left_out.items()]


def _disturbance(used: pl.DataFrame) -> list[str]:
    """One line where a good part of the trials was disturbed."""
    reasons = [reason for reason in used["disturbed"].to_list() if reason]
    if len(reasons) * 4 < used.height or not reasons:
        return []
    return [
        f"{len(reasons)} of {used.height} timing trials were disturbed, the last by: {reasons[-1]}; "
        "pairing within rounds removes drift, not all of this: measure on a quiet machine before you publish"
    ]


def short_names(manifest: Manifest) -> dict[str, str]:
    """Arm ids with the name that a sweep gave them, else the label made of their levels."""
    listed = {effect.pairs[0][0]: effect.toggle for effect in manifest.effects if effect.design == "arms"}
    references = {arm: name for name, arm in manifest.sweep.references.items()}
    return {arm.id: references.get(arm.id) or listed.get(arm.id) or arm.label for arm in manifest.arms}


def _samples(manifest: Manifest, judge: Judge) -> list[str]:
    """One line where the arms did a sample of their work (evidence number `sampled_share` below 1)."""
    found = [
        seen.numbers.get("sampled_share", 1.0) for arm in manifest.arms if (seen := judge.evidence_of(arm.id))
    ]
    if not found or min(found) >= 1:
        return []
    return [
        f"extrapolated: times per {judge.cls.unit} come from the same seeded {min(found):.0%} of the work in"
        " every arm"
    ]


def _bounds(manifest: Manifest, judge: Judge) -> list[str]:
    """What each arm waits for, where that is known: a host-bound arm gains nothing from faster kernels."""
    found = [(arm.label, judge.bound_by(arm.id)) for arm in manifest.arms]
    return [f"{label}: {words}" for label, words in found if words]


def _seen(manifest: Manifest, judge: Judge) -> list[str]:
    """What the rounds that are there can show, from the spread they have."""
    spread = judge.times.spread()
    if spread is None or spread.mean_square == 0:
        return []
    return [str(power(manifest, math.sqrt(2 * spread.mean_square), judge.times.replications))]


def _isolation(manifest: Manifest, used: pl.DataFrame) -> list[str]:
    """One line where arms that were to stay in their processes could not."""
    fresh = used.filter(pl.col("generation").is_null()).height
    if manifest.sweep.measure.isolation != "resident" or not fresh:
        return []
    return [
        f"{fresh} of {used.height} timing trials ran in fresh processes, because the arms did not fit into"
        " memory together"
    ]


def _reference(manifest: Manifest, used: pl.DataFrame) -> Reference | None:
    """The first reference that has finished rounds."""
    for name, arm in manifest.sweep.references.items():
        if times := used.filter(pl.col("arm") == arm)["ns_per_unit"].to_list():
            return Reference(name, median(times), len(times))
    return None


def _missing_references(manifest: Manifest, used: pl.DataFrame) -> list[str]:
    """References that nothing can be held against, where others can."""
    there = set(used["arm"].to_list())
    missing = [name for name, arm in manifest.sweep.references.items() if arm not in there]
    if not missing or not there:
        return []
    return [f"reference {name} has no finished round, so nothing is compared with it" for name in missing]


def _arm_result(arm: Arm, ended: Counts, used: pl.DataFrame, phases: pl.DataFrame) -> ArmResult:
    own = used.filter(pl.col("arm") == arm.id)
    times = own["ns_per_unit"].to_list()
    peaks = own["peak_bytes"].to_list()
    shares = own["mfu"].drop_nulls().to_list()
    result = ArmResult(
        arm.label, len(times), middle(times), max(peaks) if peaks else None, ended, *phases_of(phases, arm.id)
    )
    return replace(result, mfu=middle(shares))


def middle(values: Sequence[float]) -> float | None:
    """Median, None of nothing."""
    return median(values) if values else None


def _trials_behind(result: EffectResult, ended: Mapping[str, Counts]) -> Counts:
    """How the trials of an effect's arms ended; those of its bases stand in rows of their own."""
    arms = result.effect.contrast or dict.fromkeys(arm for arm, _ in result.effect.pairs)
    return added(ended.get(arm, {}) for arm in arms)


def _arm_table(manifest: Manifest, arms: Sequence[ArmResult]) -> pl.DataFrame:
    """One row for each arm; a column for each outcome says how many of its trials ended so."""
    rows = [
        {
            "arm": arm.id,
            "label": result.label,
            "name": result.name,
            "rounds": result.rounds,
            "ns_per_unit": result.ns_per_unit,
            "iteration_ns": result.iteration_ns,
            "peak_bytes": result.peak_bytes,
            "mfu": result.mfu,
            **{outcome.value: result.outcomes.get(outcome.value, 0) for outcome in Outcome},
        }
        for arm, result in zip(manifest.arms, arms, strict=True)
    ]
    floats = {
        "ns_per_unit": pl.Float64,
        "iteration_ns": pl.Float64,
        "peak_bytes": pl.Int64,
        "mfu": pl.Float64,
    }
    return pl.DataFrame(rows, schema_overrides=floats)


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
        "cpu_ratio": result.cpu[0] if result.cpu else None,
        "cpu_low": result.cpu[1] if result.cpu else None,
        "cpu_high": result.cpu[2] if result.cpu else None,
        "rounds": result.rounds,
        "method": result.method,
        "parity": judged.verdict.value if judged else None,
        "parity_worst": judged.worst.value if judged and judged.worst else None,
        "parity_where": f"{judged.worst.check} {judged.worst.where}" if judged and judged.worst else None,
        "memory_bytes": result.memory_bytes,
        "compile_s": result.compile_s,
        "warm_compile_s": result.warm_compile_s,
        "break_even_iterations": result.break_even,
        "rulings": "; ".join(f"{claim.section}: {ruling}" for claim, ruling in result.rulings),
        "note": result.note,
    }
