"""Table -> effects with intervals and verdicts, parity, rulings; reads earlier stages, runs no trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import polars as pl

from perfsweep.pipelines.analysis.arm_records import Counts, outcome_counts, scaling_of, sum_counts
from perfsweep.pipelines.analysis.arm_results import ArmResult, Quality, arm_results, judge_quality
from perfsweep.pipelines.analysis.columns import parquet_table
from perfsweep.pipelines.analysis.combinations import (
    AloneAndBeside,
    Corners,
    Part,
    Together,
    alone_and_beside,
    interaction_corners,
    parts_of,
)
from perfsweep.pipelines.analysis.effect_result import EffectResult, RuledClaim, effect_name, fastest, winners
from perfsweep.pipelines.analysis.exclusions import (
    BASE,
    OTHER_DATA,
    comparable_trials,
    machine_name,
    machine_words,
)
from perfsweep.pipelines.analysis.failed_trials import FailedTrials, failed_trials, missing_rounds
from perfsweep.pipelines.analysis.iteration_series import read_series
from perfsweep.pipelines.analysis.judging import Judge
from perfsweep.pipelines.analysis.notes import comparison_notes, disturbance, scatter_warning
from perfsweep.pipelines.analysis.quantity import Measured, Quantity
from perfsweep.pipelines.analysis.quantity_results import QuantityResults, arm_table, chosen, effect_table
from perfsweep.pipelines.analysis.rulings import all_rulings, ruling_table
from perfsweep.pipelines.store.files import write_parquet
from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Manifest, Outcome, SweepFolder


@dataclass(frozen=True)
class Reference:
    """The arm that others are compared with, its time per unit in ns, and its rounds in all packs."""

    name: str
    ns_per_unit: float
    rounds: int
    packs: int = 1


@dataclass(frozen=True)
class Elsewhere:
    """Effects in packs that ran on another kind of machine, compared only with one another."""

    machine: str  # its device, or the facts in which it differs
    effects: tuple[EffectResult, ...]


@dataclass(frozen=True)
class Comparison:
    """The results of a sweep.

    Attributes
    ----------
    name, unit : of the sweep, and the unit of work that its times are per
    margin : relative change of time below which there is no difference
    reference : the baseline that numbers are compared with; None while it has no finished round
    effects, arms : one result for each effect and for each arm of the plan
    notes : further facts that a reader must know, as sentences
    quality : deviations of each arm from the oracles that the workload checks against
    rulings : claims with their rulings in this sweep
    corners : times of the four combinations of two toggles, for interactions that are not confounded
    alone_and_beside : levels that were measured alone and by leaving them out
    failures : failed trials that no later attempt repeated successfully
    missing : planned rounds that were not measured, and why, in sentences
    quantities : what the tables show in addition to time, as far as it is available
    machine : the machine that ran it, in few words
    noise : what kept the machine busy, where that matters
    fastest : the arm that gains most by itself, of one level or of several; None where nothing is faster
    winners : for each toggle the level to turn on, by its gain alone
    together : all winners at once; None while no second sweep has measured that
    parts : the part of each gain that is a step from one baseline to another
    workload, options : its name, and its fields that are not at their default
    in_code : by toggle and level as text, what to change in a program, where a level says it
    """

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
    failures: tuple[FailedTrials, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()
    missing: tuple[str, ...] = ()
    quantities: tuple[Quantity, ...] = ()
    machine: str = ""
    noise: tuple[str, ...] = ()
    fastest: EffectResult | None = None
    winners: tuple[EffectResult, ...] = ()
    together: Together | None = None
    parts: tuple[Part, ...] = ()
    workload: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    in_code: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether a trial failed, a round is missing, or a time: of an arm that could run, or of all arms."""
        no_time = (r.outcome.removeprefix(BASE) for r in self.effects if r.ratio is None)
        mistakes = any(one.is_mistake for one in self.failures)
        nothing = bool(self.failures) and all(arm.ns_per_unit is None for arm in self.arms)
        return mistakes or bool(self.missing) or nothing or any(why in (OTHER_DATA, "") for why in no_time)


def compare(
    folder: SweepFolder, manifest: Manifest, trials: pl.DataFrame, progress: Progress | None = None
) -> Comparison:
    """Judge every effect of the manifest and write `tables/`; `progress` where records are read already.

    Raises
    ------
    RecordError
        A record has a time that is not positive.
    """
    progress = progress or read_progress(folder, manifest)
    series = read_series(trials)
    ended_well = trials.filter(pl.col("used") & (pl.col("outcome") == Outcome.OK.value))
    sound = comparable_trials(ended_well, series.contradictions)
    judge = Judge(manifest, progress, sound.trials, data=sound.data, left_out=sound.left_out)
    ended = outcome_counts(trials)
    quantities = chosen(manifest.sweep.columns)
    further = _further(folder, quantities, judge, progress)
    effects = tuple(
        replace(
            r,
            trials=_trials_behind(r, ended),
            scaling=scaling_of(r.effect, r.ratio, r.low, r.high, judge.records),
            quantities=further.of_effect(r),
        )
        for r in judge.effects()
    )
    arms = tuple(map(further.with_values, arm_results(folder, judge, series.phases, sound.trials, ended)))
    rulings = all_rulings(effects, judge.ruler)
    for name, table in (
        ("effects", parquet_table(effect_table(quantities), effects)),
        ("arms", parquet_table(arm_table(quantities), arms)),
        ("rulings", ruling_table(rulings, manifest, judge.device.name)),
    ):
        write_parquet(folder.tables_dir / f"{name}.parquet", table)
    reference = next(iter(manifest.sweep.references.values()))
    return Comparison(
        name=manifest.sweep.name,
        unit=judge.declared.unit,
        margin=manifest.sweep.measure.margin,
        reference=_reference(manifest, sound.trials),
        effects=effects,
        arms=arms,
        notes=(
            *comparison_notes(judge, sound, progress, series.unreadable),
            *further.notes(
                {effect_name(r): r.quantities for r in effects}, [one.id for one in arms if one.rounds]
            ),
        ),
        rulings=rulings,
        quality=judge_quality(manifest.arm_names, judge.declared.checks, judge.agreement.evidence),
        corners=tuple(interaction_corners(manifest, sound.trials)),
        alone_and_beside=tuple(alone_and_beside(effects)),
        failures=failed_trials(progress, manifest),
        elsewhere=tuple(_elsewhere(folder, manifest, progress, trials, series.contradictions)),
        missing=missing_rounds(progress, manifest),
        quantities=quantities,
        machine=machine_words(progress),
        noise=(*scatter_warning(judge), *disturbance(sound.trials)),
        fastest=fastest(effects, reference),
        winners=tuple(winners(effects, reference, {arm.id: arm.levels for arm in manifest.arms})),
        parts=parts_of(manifest.sweep.parts, effects),
        workload=manifest.sweep.workload,
        options=judge.declared.options,
        in_code=judge.declared.in_code,
    )


def _further(
    folder: SweepFolder, quantities: Sequence[Quantity], judge: Judge, progress: Progress
) -> QuantityResults:
    """Read the chosen quantities from the trials that the judge uses."""
    trials = judge.records.every_timed()
    measured = Measured(judge.manifest, progress, trials, judge.times, folder)
    return QuantityResults(quantities, measured)


def _elsewhere(
    folder: SweepFolder,
    manifest: Manifest,
    progress: Progress,
    trials: pl.DataFrame,
    contradictions: Mapping[str, str],
) -> Iterator[Elsewhere]:
    """Judge trials on other kinds of machines, each kind separately."""
    for part in progress.elsewhere:
        used = [one for pack in manifest.packs for n in range(len(pack.orders)) for one in part.used(pack, n)]
        folders = [str(one.folder) for one in used if one.record.outcome is Outcome.OK]
        sound = comparable_trials(trials.filter(pl.col("folder").is_in(folders)), contradictions)
        if sound.trials.height:
            judge = Judge(manifest, part, sound.trials, data=sound.data, left_out=sound.left_out)
            further = _further(folder, chosen(manifest.sweep.columns), judge, part)
            effects = tuple(
                replace(one, rulings=(), quantities=further.of_effect(one))
                for one in judge.effects()
                if one.rounds
            )
            yield Elsewhere(machine_name(progress.machine, part.machine), effects)


def _reference(manifest: Manifest, used: pl.DataFrame) -> Reference | None:
    """The first reference arm that has finished rounds."""
    for name, arm in manifest.sweep.references.items():
        mine = used.filter(pl.col("arm") == arm)
        if times := mine["ns_per_unit"].to_list():
            return Reference(name, median(times), len(times), mine["pack"].n_unique())
    return None


def _trials_behind(result: EffectResult, ended: Mapping[str, Counts]) -> Counts:
    """How the trials of an effect's arms ended; trials of its bases are in rows of their own."""
    arms = result.effect.contrast or dict.fromkeys(arm for arm, _ in result.effect.pairs)
    return sum_counts(ended.get(arm, {}) for arm in arms)
