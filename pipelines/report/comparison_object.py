"""The answer of `compare --json`: everything that its tables and sentences say, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsweep.pipelines.analysis.arm_results import ARMS, ArmResult
from perfsweep.pipelines.analysis.combinations import Part
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_columns import EFFECTS
from perfsweep.pipelines.analysis.effect_result import EffectResult, RuledClaim
from perfsweep.pipelines.analysis.failed_trials import FAILURES, FailedTrials
from perfsweep.pipelines.analysis.quantity_results import arm_table, effect_table
from perfsweep.pipelines.analysis.rulings import RULINGS
from perfsweep.pipelines.report.arm_history import Against
from perfsweep.pipelines.report.sentences import footnotes, open_questions, use
from perfsweep.pipelines.report.tables import Rows, member
from perfsweep.pipelines.statistics.estimates import LEVEL

SCHEMA = "perfsweep.compare/2"
CSV_SCHEMA = "perfsweep.compare.csv/2"
"""Name and version of the rows that `compare --csv` prints: those of `effects`."""


@dataclass(frozen=True, kw_only=True)
class ReferenceObject:
    """The arm that the sweep's numbers are read against."""

    name: str = member("of the arm")
    ns_per_unit: float = member("median of its rounds")
    rounds: int = member("of it that count, in all packs")
    packs: int = member("that it has such rounds in")


@dataclass(frozen=True, kw_only=True)
class ElsewhereObject:
    """Effects of packs that ran on another kind of machine."""

    machine: str = member("its device, or in what it differs")
    effects: Rows[EffectResult] = member("of packs that ran there", columns=EFFECTS)


@dataclass(frozen=True, kw_only=True)
class TogetherObject:
    """All levels to turn on at once, as a second sweep measured them."""

    folder: str = member("of the second sweep")
    whole: Rows[EffectResult] = member("all of them against the baseline: one row", columns=EFFECTS)
    steps: Rows[EffectResult] = member("each level on top of those before it", columns=EFFECTS)


@dataclass(frozen=True, kw_only=True)
class GainObject:
    """One arm's gain, told apart by a step from one baseline to another; speeds, 2 is twice as fast."""

    arm: str = member("what the sweep calls the arm")
    whole: float | None = member("of the arm against `start`")
    method: float | None = member("of the arm against `end`")


@dataclass(frozen=True, kw_only=True)
class PartObject:
    """A step from one baseline to another that is a part of every gain on the first."""

    name: str = member("what the sweep calls it, such as `processor`")
    start: str = member("baseline that it begins at")
    end: str = member("baseline that it ends at")
    speed: float | None = member("of `end` against `start`; null where one cannot be measured here")
    gains: tuple[GainObject, ...] = member("of each arm that was measured against both")


@dataclass(frozen=True, kw_only=True)
class DeviationObject:
    """One check of one arm against the oracle."""

    arm: str = member("what the sweep calls the arm")
    check: str = member("name of the check")
    value: float | None = member(
        "how far the arm's results are from the oracle's; null where that is no number"
    )
    bound: float = member("that the value may reach")
    holds: bool = member("whether it keeps to that")


@dataclass(frozen=True, kw_only=True)
class ComparisonObject:
    """What `perfsweep compare SWEEP --json` prints."""

    schema: str = member(f"`{SCHEMA}`", default=SCHEMA)
    sweep: str = member("its name")
    workload: str = member("as the command line names it")
    folder: str = member("of the sweep, as it was given")
    report: str | None = member("path of the page that was written; null where the sweep is read-only")
    exit: int = member("the exit status, that of the command without `--json`")
    unit: str = member("what times are per: one of these")
    level: float = member("confidence of intervals")
    margin: float = member("relative difference of times that is none")
    reference: ReferenceObject | None = member("the baseline; null while it has no finished round")
    effects: Rows[EffectResult] = member(
        "every effect of the plan, in its order, with the further columns that `report.columns` chose",
        columns=EFFECTS,
    )
    elsewhere: tuple[ElsewhereObject, ...] = member("effects on other kinds of machines, a kind each")
    arms: Rows[ArmResult] = member("every arm of the plan", columns=ARMS)
    claims: Rows[RuledClaim] = member("claims of reports with their rulings here", columns=RULINGS)
    oracles: tuple[DeviationObject, ...] = member("results of arms against the workload's oracles")
    failures: Rows[FailedTrials] = member("trials that ended badly, by arm and exception", columns=FAILURES)
    missing: tuple[str, ...] = member("rounds that are planned and not there, and why, in sentences")
    machine: str = member("what ran it, in few words; empty while nothing has run")
    noise: tuple[str, ...] = member("what kept the machine from being at rest, where that matters")
    together: TogetherObject | None = member("all levels to turn on at once; null where not measured")
    parts: tuple[PartObject, ...] = member("the part of each gain that is a step between two baselines")
    command: str | None = member("that runs the arm to use; null where nothing is faster")
    open: tuple[str, ...] = member("effects without an answer, why, and what would decide, in sentences")
    notes: tuple[str, ...] = member("what else a reader must know, in the sentences below the tables")
    baseline: str | None = member("file that `--store` wrote")
    against: tuple[Against, ...] = member("other sweeps after `--against`, in their order")


def effect_rows(comparison: Comparison, effects: Sequence[EffectResult]) -> Rows[EffectResult]:
    """Rows of effects with the columns of the tables, columns from `report.columns` included."""
    return Rows(effect_table(comparison.quantities), effects)


def comparison_object(
    comparison: Comparison,
    workload: str,
    folder: str,
    report: Path | None,
    status: int,
    baseline: str | None,
    against: Sequence[Against],
) -> ComparisonObject:
    """Say for a program what a comparison found."""
    reference = comparison.reference
    return ComparisonObject(
        sweep=comparison.name,
        workload=workload,
        folder=folder,
        report=None if report is None else str(report),
        exit=status,
        unit=comparison.unit,
        level=LEVEL,
        margin=comparison.margin,
        reference=ReferenceObject(**vars(reference)) if reference else None,
        effects=effect_rows(comparison, comparison.effects),
        elsewhere=tuple(
            ElsewhereObject(machine=part.machine, effects=effect_rows(comparison, part.effects))
            for part in comparison.elsewhere
        ),
        arms=Rows(arm_table(comparison.quantities), comparison.arms),
        claims=Rows(RULINGS, comparison.rulings),
        oracles=tuple(
            DeviationObject(arm=arm.arm, check=one.check, value=one.value, bound=one.bound, holds=one.holds)
            for arm in comparison.quality
            for one in arm.deviations
        ),
        failures=Rows(FAILURES, comparison.failures),
        missing=comparison.missing,
        machine=comparison.machine,
        noise=comparison.noise,
        together=_together(comparison),
        parts=tuple(map(_part, comparison.parts)),
        command=use(comparison) or None,
        open=tuple(open_questions(comparison)),
        notes=tuple(footnotes(comparison)[len(comparison.missing) :]),
        baseline=baseline,
        against=tuple(against),
    )


def _together(comparison: Comparison) -> TogetherObject | None:
    if (found := comparison.together) is None:
        return None
    return TogetherObject(
        folder=found.folder,
        whole=effect_rows(comparison, (found.whole,)),
        steps=effect_rows(comparison, found.steps),
    )


def _part(part: Part) -> PartObject:
    gains = (GainObject(arm=one.arm, whole=one.whole.speed, method=one.method.speed) for one in part.gains)
    speed = part.step.speed if part.step else None
    return PartObject(name=part.name, start=part.start, end=part.end, speed=speed, gains=tuple(gains))
