"""Each arm over all rounds: time per unit, phases, memory, counters, and how far it is from its oracles.

The columns of the table of arms are declared here once: for `report.html`, `report.md` and `arms.parquet`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import polars as pl

from perfsweep.pipelines.analysis.arm_records import (
    ArmRecords,
    CounterChange,
    Counts,
    counter_changes,
    counter_table,
    outcome_text,
)
from perfsweep.pipelines.analysis.columns import (
    NAME_WIDTH,
    ON_GPU,
    Column,
    Where,
    file_column,
    own_column,
    soft,
    some,
)
from perfsweep.pipelines.analysis.iteration_series import PhaseShare, phases_of
from perfsweep.pipelines.analysis.judging import Judge
from perfsweep.pipelines.statistics.log_ratios import Weighted
from perfsweep.pipelines.store.files import write_parquet
from perfsweep.pipelines.store.records import Outcome, SweepFolder
from perfsweep.pipelines.units import MB, duration
from perfsweep.workloads.api import Check, Evidence


@dataclass(frozen=True)
class ArmResult:
    """One arm over all rounds: median time per unit in ns and peak memory, and how its trials ended.

    `name` is what the sweep calls it, the label made of its levels where it has no name.
    `iteration_ns` is the median iteration; `phases` say where the time per unit goes, as far as the workload
    marks them; `changes` are the counters that differ from the baseline's. `mfu` is the median share of the
    device's peak that the workload's formula accounts for, where both are known. Faults and system time are
    medians of an iteration, `run_delay` the median share of the region for which others had its cores. Of
    several ranks `collectives` and `straggling` are medians of what `RankFigures` says. `quantities` are
    the chosen ones other than time, by key, `bounds` the 95 % intervals of the ones that have one of an arm
    alone, and `comments` words on some of them. `on_gpu` says of an arm measured on a CPU whether it acts on
    a GPU too. Work in `extra_phases` is what some users leave out. `paired_ns` is the time per unit from the
    rounds that the arm shares with the first reference arm: where the machine drifts, plain medians could
    order arms differently from effects.
    """

    label: str
    rounds: int
    ns_per_unit: float | None
    peak_bytes: int | None
    outcomes: Counts
    iteration_ns: float | None = None
    phases: tuple[PhaseShare, ...] = ()
    changes: tuple[CounterChange, ...] = ()
    name: str = ""
    mfu: float | None = None
    id: str = ""
    minor_faults: float | None = None
    major_faults: float | None = None
    system_ns: float | None = None
    run_delay: float | None = None
    ranks: int | None = None
    nodes: int | None = None
    collectives: float | None = None
    straggling: float | None = None
    quantities: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    comments: Mapping[str, str] = field(default_factory=dict)
    paired_ns: float | None = None
    on_gpu: str = ""
    extra_phases: tuple[str, ...] = ()

    @property
    def lean_ns(self) -> float | None:
        """Time per unit without `extra_phases`, by its marked phases; None without a time."""
        extra_ns = sum(one.ns_per_unit for one in self.phases if one.phase in self.extra_phases)
        return None if self.ns_per_unit is None else self.ns_per_unit - extra_ns


def arm_results(
    folder: SweepFolder, judge: Judge, phases: pl.DataFrame, used: pl.DataFrame, ended: Mapping[str, Counts]
) -> tuple[ArmResult, ...]:
    """Sum up every arm, and write the tables of phases and counters."""
    manifest = judge.manifest
    write_parquet(folder.tables_dir / "phases.parquet", phases)
    counters = {arm.id: judge.records.counters(arm.id) for arm in manifest.arms}
    write_parquet(folder.tables_dir / "counters.parquet", counter_table(manifest.arms, counters))
    first, names = next(iter(manifest.sweep.references.values())), manifest.arm_names
    times_ns = {arm.id: _median(used.filter(pl.col("arm") == arm.id)["ns_per_unit"]) for arm in manifest.arms}
    results = []
    for arm in manifest.arms:
        own = used.filter(pl.col("arm") == arm.id)
        iteration_ns, shares = phases_of(phases, arm.id)
        results.append(
            ArmResult(
                label=arm.label,
                rounds=own.height,
                ns_per_unit=times_ns[arm.id],
                paired_ns=_paired_ns(judge, arm.id, times_ns[arm.id], times_ns[first]),
                peak_bytes=_whole(_median(own["peak_bytes"])),
                outcomes=ended.get(arm.id, {}),
                iteration_ns=iteration_ns,
                phases=shares,
                changes=counter_changes(counters[first], counters[arm.id]),
                name=names[arm.id],
                mfu=_median(own["mfu"]),
                id=arm.id,
                on_gpu=judge.on_gpu(arm),
                extra_phases=tuple(one.phase for one in shares if one.phase in judge.declared.extra_phases),
                **_kernel_counts(own),
                **_rank_figures(judge.records, arm.id),
            )
        )
    return tuple(results)


def _paired_ns(judge: Judge, arm: str, own_ns: float | None, base_ns: float | None) -> float | None:
    """Time of an arm (id) by the ratio from rounds shared with the first baseline, else its own median."""
    first = next(iter(judge.manifest.sweep.references.values()))
    if arm == first or base_ns is None:
        return own_ns
    estimate = judge.times.estimate(Weighted({arm: 1.0, first: -1.0}))
    return base_ns * math.exp(estimate.log_ratio) if estimate.n else own_ns


def _kernel_counts(own: pl.DataFrame) -> dict[str, float | None]:
    """What the kernel did in an iteration, and the share of the region for which it gave cores to others."""
    each = own.filter(pl.col("iterations") > 0)
    counts = {
        name: _median(each[name] / each["iterations"])
        for name in ("minor_faults", "major_faults", "system_ns")
    }
    return {**counts, "run_delay": _median(own["run_delay_ns"] / (own["region_s"] * 1e9))}


def _rank_figures(records: ArmRecords, arm: str) -> dict[str, Any]:
    """Ranks and nodes of an arm, and medians of what its ranks lost to one another; nothing of one rank."""
    found = [record.ranks for record in records.timed(arm) if record.ranks]
    if not found:
        return {}
    profiled = [one for one in found if one.collectives is not None and one.straggling is not None]
    medians = {
        name: median(getattr(one, name) for one in profiled) if profiled else None
        for name in ("collectives", "straggling")
    }
    return {"ranks": len(found[0].nodes), "nodes": len(set(found[0].nodes)), **medians}


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _median(column: pl.Series) -> float | None:
    values: Sequence[float] = column.drop_nulls().to_list()
    return median(values) if values else None


@dataclass(frozen=True)
class OracleDeviation:
    """One check of one arm against the oracle: its value and the bound it may reach. NaN never holds."""

    check: str
    value: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether the value is within the bound."""
        return self.value <= self.bound


@dataclass(frozen=True)
class Quality:
    """All deviations of an arm from its oracles, in the order in which its workload declares the checks."""

    arm: str
    deviations: tuple[OracleDeviation, ...]


def judge_quality(
    labels: Mapping[str, str], checks: Sequence[Check], evidence: Callable[[str], Evidence | None]
) -> tuple[Quality, ...]:
    """Judge every arm (id to label) whose evidence holds a deviation; arms without evidence are left out."""
    judged = []
    for arm, label in labels.items():
        own = evidence(arm)
        numbers = own.numbers if own else {}
        deviations = tuple(
            OracleDeviation(check.name, float(numbers[check.name]), float(check.bound))
            for check in checks
            if check.against == "oracle" and check.name in numbers and check.bound is not None
        )
        if deviations:
            judged.append(Quality(label, deviations))
    return tuple(judged)


SHOWN_PHASES = 6


def _phases_text(arm: ArmResult) -> str:
    """The longest phases with their time per unit; those under a hundredth of the whole are left out."""
    least = (arm.ns_per_unit or 0.0) / 100
    longest = [share for share in arm.phases if share.ns_per_unit >= least][:SHOWN_PHASES]
    return ", ".join(
        f"{share.phase} {duration(share.ns_per_unit)}{' (device)' * (share.on == 'device')}"
        for share in longest
    )


def _ranks_text(arm: ArmResult) -> str:
    on = f" on {arm.nodes} nodes" if (arm.nodes or 1) > 1 else ""
    return f"{arm.ranks}{on}" if arm.ranks else ""


def _trials_ended(outcome: Outcome) -> Column[ArmResult]:
    return file_column(
        outcome.value,
        lambda arm: arm.outcomes.get(outcome.value, 0),
        int,
        f"trials of any kind that ended so: {outcome.value}",
    )


ARMS: tuple[Column[ArmResult], ...] = (
    Column(
        "name",
        "arm",
        lambda arm: arm.name,
        lambda arm: arm.name or arm.label,
        doc="what the sweep calls the arm, else its label",
        width=NAME_WIDTH,
    ),
    Column(
        "label",
        "levels",
        lambda arm: arm.label,
        lambda arm: "" if arm.name in ("", arm.label) else arm.label,
        where=Where.HTML | Where.FILE,
        doc="what sets an arm with a name of its own apart from the baseline",
        optional=True,
        width=NAME_WIDTH,
        style=soft,
    ),
    own_column("on_gpu", "on a GPU", doc=ON_GPU, optional=True, style=soft),
    own_column("ns_per_unit", "time per {unit}", some(duration), doc="median of the rounds", kind=float),
    file_column(
        "paired_ns",
        lambda arm: arm.paired_ns,
        float,
        "time per unit by the rounds that it shares with the baseline: arms are ordered by it",
    ),
    own_column("iteration_ns", "median iteration", some(duration), doc="median iteration", kind=float),
    Column(
        "phases",
        "phases, per {unit}",
        text=_phases_text,
        where=Where.PAGES,
        doc="where the time goes, as far as the workload marks it",
        width=NAME_WIDTH,
        style=soft,
    ),
    own_column(
        "rounds", "rounds", some(str), where=Where.HTML | Where.FILE, doc="timing trials that count", kind=int
    ),
    own_column(
        "peak_bytes",
        "peak memory",
        some(lambda size: f"{size / MB:.0f} MB"),
        doc="peak memory, median of its timing trials",
        kind=int,
    ),
    own_column(
        "minor_faults",
        "faults",
        some("{:,.0f}".format),
        where=Where.WIDE,
        doc="minor page faults of an iteration: memory that the allocator gave back and took again",
        kind=float,
        optional=True,
    ),
    file_column("major_faults", lambda arm: arm.major_faults, float, "major page faults of an iteration"),
    file_column("system_ns", lambda arm: arm.system_ns, float, "time of an iteration in the kernel"),
    own_column(
        "run_delay",
        "run delay",
        some("{:.1%}".format),
        where=Where.WIDE,
        doc="share of the time for which others had its cores",
        kind=float,
        optional=True,
    ),
    own_column(
        "mfu", "MFU", "{:.1%}".format, doc="model FLOPs by the device's peak", kind=float, optional=True
    ),
    Column(
        "ranks",
        "ranks",
        lambda arm: arm.ranks,
        _ranks_text,
        where=Where.WIDE,
        doc="processes of a trial; its time is that of the slowest",
        kind=int,
        optional=True,
    ),
    file_column("nodes", lambda arm: arm.nodes, int, "nodes that its ranks lie on"),
    own_column(
        "collectives",
        "in collectives",
        "{:.0%}".format,
        where=Where.WIDE,
        doc="share of the time in which a rank has a collective under way, under the profiler",
        kind=float,
        optional=True,
    ),
    own_column(
        "straggling",
        "stragglers",
        "{:.0%}".format,
        where=Where.WIDE,
        doc="share of the time for which a rank waits in collectives for the last one to come",
        kind=float,
        optional=True,
    ),
    Column(
        "trials",
        "trials",
        text=lambda arm: outcome_text(arm.outcomes),
        where=Where.PAGES,
        doc="how all trials of the arm ended",
        width=NAME_WIDTH,
    ),
    *(_trials_ended(outcome) for outcome in Outcome),
    file_column("arm", lambda arm: arm.id, doc="id of the arm: its folder under `trials/`"),
)
"""Of one arm each row."""
