"""What a reader must know in addition to the numbers of a comparison, a line each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

import polars as pl

from perfsweep.pipelines.analysis.arm_records import bound_by
from perfsweep.pipelines.analysis.exclusions import ComparableTrials
from perfsweep.pipelines.analysis.failed_trials import notes_on_other_machines
from perfsweep.pipelines.analysis.judging import Judge
from perfsweep.pipelines.plan.power import PLANNING_PAIR_SD, Spread, power
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.records import Manifest, Outcome
from perfsweep.pipelines.versions.environments import environment_lines


def comparison_notes(
    judge: Judge, sound: ComparableTrials, progress: Progress, unreadable: Sequence[str]
) -> tuple[str, ...]:
    """Say what bounds the arms, what the rounds can show, and what is missing, disturbed or unreadable."""
    manifest, used = judge.manifest, sound.trials
    return (
        *environment_lines(manifest.sweep.versions),
        *_margin(judge),
        *_remarks(judge),
        *_bounds(judge),
        *_power(judge),
        *_scatter(judge),
        *_recompiles(judge),
        *_growth(judge),
        *_missing_references(judge, used),
        *sound.notes,
        *notes_on_other_machines(progress, manifest),
        *_left_out(manifest, progress),
        *machine_notes(used),
        *kernel_notes(used, manifest.arm_names, next(iter(manifest.sweep.references.values()))),
        *_samples(judge),
        *_idle_references(judge),
        *_references_as_timed(judge),
        *judge.notes,
        *judge.agreement.notes,
        *_skipped([*progress.damaged, *unreadable]),
    )


def _margin(judge: Judge) -> list[str]:
    """The margin where it is another than a reader takes for granted."""
    margin = judge.manifest.sweep.measure.margin
    if margin == MeasureConfig().margin:
        return []
    return [f"in this sweep less than {margin * 100:g} % either way is no difference (measure.margin)"]


def _remarks(judge: Judge) -> list[str]:
    """What the workload says of what it counted in a baseline."""
    counted = [judge.records.counters(arm) or {} for arm in judge.manifest.sweep.references.values()]
    return [text for name, text in judge.declared.remarks if any(one.get(name) for one in counted)]


def _bounds(judge: Judge) -> list[str]:
    """What each arm waits for, where that is known: a host-bound arm gains nothing from faster kernels."""
    lines = []
    for arm, name in judge.manifest.arm_names.items():
        times_ns = [record.ns_per_unit for record in judge.records.timed(arm) if record.units > 0]
        busy_ns = (judge.records.counters(arm) or {}).get("device_busy_ns")
        if words := bound_by(busy_ns, median(times_ns) if times_ns else None):
            lines.append(f"{name}: {words}")
    return lines


def _recompiles(judge: Judge) -> list[str]:
    """Arms whose code is compiled again and again, and the guard that mostly failed."""
    lines = []
    for arm, name in judge.manifest.arm_names.items():
        timed = judge.records.timed(arm)
        if times := round(median([record.recompiles for record in timed] or [0])):
            reasons = Counter(record.recompile_reason for record in timed if record.recompile_reason)
            why = "".join(f", mostly because of {reason}" for reason, _ in reasons.most_common(1))
            often = "once" if times == 1 else f"{times} times"
            lines.append(f"{name}: compiles again {often} in a trial{why}")
    return lines


def _growth(judge: Judge) -> list[str]:
    """Arms whose iterations grow: what a short region shows of them is no figure of a long run."""
    lines = []
    for arm, name in judge.manifest.arm_names.items():
        slower, added = judge.records.growth(arm)
        told = [f"its iterations became {slower:.0%} slower"] if slower else []
        told += [f"each adds {added / 1024:,.0f} kB of memory"] if added else []
        if told:
            why = "something is kept from each, such as its loss with the graph"
            lines.append(f"{name} grows: {' and '.join(told)}; {why}")
    return lines


def _power(judge: Judge) -> list[str]:
    """What the rounds that are there can show, from the spread they have."""
    variances = judge.times.variances
    if not (variances.degrees and variances.noise):
        return []
    layout = judge.times.layout
    # A pair has the variance of two arms.
    spread = Spread(math.sqrt(2 * variances.noise), math.sqrt(2 * layout.layout if layout else 0.0))
    return [str(power(judge.manifest, spread, judge.times.rounds, judge.times.replications))]


def _scatter(judge: Judge) -> list[str]:
    """What the scatter of times belongs to."""
    layout = judge.times.layout
    return [str(layout)] if layout else []


def scatter_warning(judge: Judge) -> list[str]:
    """One sentence where pairs scatter by more than the plan assumed."""
    variances = judge.times.variances
    if not variances.beyond(PLANNING_PAIR_SD):
        return []
    return [
        f"this machine was noisy: pairs scatter by {math.sqrt(2 * variances.noise):.1%} (the plan assumed"
        f" {PLANNING_PAIR_SD:.1%}), so intervals are wider than predicted"
    ]


def _missing_references(judge: Judge, used: pl.DataFrame) -> list[str]:
    """References that nothing can be held against, where others can; a row says which cannot act."""
    there = set(used["arm"].to_list())
    missing = [
        name
        for name, arm in judge.manifest.sweep.references.items()
        if arm not in there
        and all(record.outcome is not Outcome.UNSUPPORTED for record in judge.records.failed(arm))
    ]
    if not missing or not there:
        return []
    return [f"baseline {name} has no finished round, so nothing is compared with it" for name in missing]


def _left_out(manifest: Manifest, progress: Progress) -> list[str]:
    """What was measured and does not count, and why."""
    repeated = sum(len(progress.repeated(pack)) for pack in manifest.packs)
    rounds = "1 round was" if repeated == 1 else f"{repeated} rounds were"
    lines = [f"{rounds} disturbed and measured again; the disturbed attempts do not count"]
    return (lines if repeated else []) + [
        f"{count} records of {why} are left out" for why, count in progress.left_out.items()
    ]


def disturbance(used: pl.DataFrame) -> list[str]:
    """One sentence where a good part of the trials was disturbed."""
    reasons = [reason for reason in used["disturbed"].to_list() if reason]
    if len(reasons) * 4 < used.height or not reasons:
        return []
    return [
        f"{len(reasons)} of {used.height} timing trials were disturbed, the last by: {reasons[-1]}; "
        "pairing within rounds removes drift, not all of this: measure on a quiet machine before you publish"
    ]


def _references_as_timed(judge: Judge) -> list[str]:
    """References whose timing trials computed something else than their evidence: nothing else tells."""
    references = {name: judge.manifest.arm(arm) for name, arm in judge.manifest.sweep.references.items()}
    departures = [(name, judge.agreement.timed(arm, arm).departure) for name, arm in references.items()]
    return [f"baseline {name}: {departure.where}" for name, departure in departures if departure]


def _samples(judge: Judge) -> list[str]:
    """One line where the arms did a sample of their work (evidence number `sampled_share` below 1)."""
    evidence = [judge.agreement.evidence(arm.id) for arm in judge.manifest.arms]
    share = min((one.numbers.get("sampled_share", 1.0) for one in evidence if one), default=1.0)
    if share >= 1:
        return []
    return [
        f"extrapolated: times per {judge.declared.unit} come from the same seeded {share:.0%} of the work in"
        " every arm"
    ]


MOSTLY_IDLE = 0.5
"""Share of idle work (counter `idle_share`) above which a reference flatters what is held against it."""


def _idle_references(judge: Judge) -> list[str]:
    """References that work mostly for what has ended already: leaving that out is part of every ratio."""
    references = judge.manifest.sweep.references
    counters = {name: judge.records.counters(arm) or {} for name, arm in references.items()}
    shares = {name: own.get("idle_share") or 0.0 for name, own in counters.items()}
    busy = [name for name, share in shares.items() if share <= MOSTLY_IDLE]
    instead = f"; less of that does {' and '.join(busy)}" if busy else ""
    return [
        f"\N{DAGGER} {name}: {share:.0%} of its work is for what has ended already, and ratios against it"
        f" count leaving it out{instead}"
        for name, share in shares.items()
        if share > MOSTLY_IDLE
    ]


NAMED_FILES = 20
"""Unreadable files that are named one by one; more of them have one cause, which the first ones show."""


def _skipped(messages: Sequence[str]) -> list[str]:
    more = len(messages) - NAMED_FILES
    named = [f"skipped: {message}" for message in messages[:NAMED_FILES]]
    return [*named, f"skipped: {more} more files that could not be read"] if more > 0 else named


FAULTS = 10.0
"""Minor faults an iteration by which arms may differ; each takes some 0.5 to 3 us."""
SYSTEM_SHARE = 0.01
"""System time by which arms may differ, of the arm's time."""
NAMED = 4
SLOW_SHARE = 0.05
"""Excess over the usual time of a fixed piece of work of 20 ms, which repeats within 2 % (one sd) on
a crowded machine."""

MINOR_FAULTS = pl.col("minor_faults") / pl.col("iterations")
SYSTEM = pl.col("system_ns") / (pl.col("region_s") * 1e9)
"""Share of the region."""


def kernel_notes(used: pl.DataFrame, names: Mapping[str, str], reference: str) -> list[str]:
    """Name the arms whose faults or system time differ from those of the baseline (its id)."""
    measured = used.filter((pl.col("iterations") > 0) & (pl.col("region_s") > 0))
    arms = measured.group_by("arm", maintain_order=True).agg(
        faults=MINOR_FAULTS.median(), system=SYSTEM.median()
    )
    faults, system = (dict(arms.select("arm", name).iter_rows()) for name in ("faults", "system"))
    lines = []
    if others := _apart(faults, reference, FAULTS):
        named = ", ".join(f"{faults[arm]:,.0f} of {names[arm]}" for arm in (reference, *others))
        lines.append(f"minor faults an iteration: {named}; a fault costs 0.5 to 3 us")
    if others := _apart(system, reference, SYSTEM_SHARE):
        named = ", ".join(f"{system[arm] * 100:.0f} % of {names[arm]}'s" for arm in others)
        lines.append(f"system time: {system[reference] * 100:.0f} % of {names[reference]}'s time, {named}")
    return lines


def machine_notes(used: pl.DataFrame) -> list[str]:
    """Say where the machine itself was slow: a fixed piece of work took longer than its node's usual time."""
    calibrated = used.filter(pl.col("calibration_ns") > 0)
    ratios = calibrated.select(
        pl.col("calibration_ns") / pl.col("calibration_ns").median().over("pack")
    ).to_series()
    slow = ratios.filter(ratios > 1 + SLOW_SHARE).to_list()
    if not slow:
        return []
    return [
        f"the calibration loop ran up to {max(slow) - 1:.0%} slower before {len(slow)} of {used.height}"
        " timing trials"
    ]


def _apart(values: Mapping[str, float], reference: str, allowed: float) -> list[str]:
    """The arms that are further from the baseline than is allowed, the furthest first."""
    if reference not in values:
        return []
    distance = {arm: abs(value - values[reference]) for arm, value in values.items()}
    return sorted((arm for arm in values if distance[arm] > allowed), key=lambda arm: -distance[arm])[:NAMED]
