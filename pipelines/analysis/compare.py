"""Table -> effects with intervals and verdicts, parity, rulings; reads earlier stages, measures nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

import polars as pl

from pipelines.analysis import arm_columns, effect_columns
from pipelines.analysis.arm_results import ArmResult, arm_results, short_names
from pipelines.analysis.columns import parquet_table
from pipelines.analysis.combinations import AloneAndBeside, Corners, alone_and_beside, interaction_corners
from pipelines.analysis.comparable import comparable_trials
from pipelines.analysis.exclusions import BASE, OTHER_DATA
from pipelines.analysis.failures import FailedTrials, failed_trials
from pipelines.analysis.judge import EffectResult, Judge
from pipelines.analysis.notes import comparison_notes
from pipelines.analysis.oracles import Quality, judge_quality
from pipelines.analysis.outcomes import Counts, outcome_counts, sum_counts
from pipelines.analysis.phases import read_series
from pipelines.analysis.rulings import RuledClaim, all_rulings, ruling_table
from pipelines.statistics.clocks import Clock
from pipelines.store.files import write_parquet
from pipelines.store.progress import Progress, read_progress
from pipelines.store.records import Manifest, Outcome, SweepFolder


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
    alone_and_beside: tuple[AloneAndBeside, ...] = ()
    clock: Clock = Clock.WALL
    clock_reason: str = ""
    failures: tuple[FailedTrials, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a trial of any kind failed, or an arm that could have run has no time."""
        no_time = (r.outcome.removeprefix(BASE) for r in self.effects if r.ratio is None)
        return any(one.is_mistake for one in self.failures) or any(why in (OTHER_DATA, "") for why in no_time)


def compare(
    folder: SweepFolder, manifest: Manifest, trials: pl.DataFrame, progress: Progress | None = None
) -> Comparison:
    """Judge every effect of the manifest and write `tables/`; `progress` where records are read already.

    Raises
    ------
    RecordError
        A record holds a time that cannot be: zero, or negative.
    """
    progress = progress or read_progress(folder, manifest)
    series = read_series(trials)
    ended_well = trials.filter(pl.col("used") & (pl.col("outcome") == Outcome.OK.value))
    sound = comparable_trials(ended_well, series.contradictions)
    judge = Judge(manifest, progress, sound.trials, data=sound.data, left_out=sound.left_out)
    ended = outcome_counts(trials)
    effects = tuple(replace(result, trials=_trials_behind(result, ended)) for result in judge.effects())
    arms = arm_results(folder, judge, series.phases, sound.trials, ended)
    rulings = all_rulings(effects, judge.ruler)
    by_clock = sound.trials.with_columns(ns_per_unit=pl.col(judge.clock.clock.figure))
    for name, table in (
        ("effects", parquet_table(effect_columns.EFFECTS, effects)),
        ("arms", parquet_table(arm_columns.ARMS, arms)),
        ("rulings", ruling_table(rulings, manifest, judge.device().name)),
    ):
        write_parquet(folder.tables_dir / f"{name}.parquet", table)
    return Comparison(
        name=manifest.sweep.name,
        unit=judge.declared.unit,
        margin=manifest.sweep.measure.margin,
        reference=_reference(manifest, sound.trials),
        effects=effects,
        arms=arms,
        notes=comparison_notes(judge, sound, progress, series.unreadable),
        rulings=rulings,
        quality=judge_quality(short_names(manifest), judge.declared.checks, judge.evidence_of),
        corners=tuple(interaction_corners(manifest, by_clock)),
        alone_and_beside=tuple(alone_and_beside(effects)),
        clock=judge.clock.clock,
        clock_reason=judge.clock.reason,
        failures=failed_trials(progress, manifest),
    )


def _reference(manifest: Manifest, used: pl.DataFrame) -> Reference | None:
    """The first reference that has finished rounds."""
    for name, arm in manifest.sweep.references.items():
        if times := used.filter(pl.col("arm") == arm)["ns_per_unit"].to_list():
            return Reference(name, median(times), len(times))
    return None


def _trials_behind(result: EffectResult, ended: Mapping[str, Counts]) -> Counts:
    """How the trials of an effect's arms ended; those of its bases stand in rows of their own."""
    arms = result.effect.contrast or dict.fromkeys(arm for arm, _ in result.effect.pairs)
    return sum_counts(ended.get(arm, {}) for arm in arms)
