"""Records of a sweep by arm: how its trials ended, what they counted, and what the arm costs once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import mean, median

import polars as pl

from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Arm, Effect, Kind, Outcome, Pack, TrialRecord
from perfsweep.pipelines.store.trial_schema import FOUND_ON_DISK
from perfsweep.workloads.api import Device


@dataclass(frozen=True)
class Beat:
    """Heavy iterations: whether they come at no regular distance, how many a region had, and their excess of
    its time; means over the timing trials.
    """

    irregular: bool
    each: float
    share: float


class ArmRecords:
    """The records that judge an arm: timing trials of the attempts that count, failures of all attempts.

    Parameters
    ----------
    packs : the packs whose timing trials count
    left_out : folders of timing trials that do not count
    """

    def __init__(
        self, progress: Progress, packs: Iterable[Pack], left_out: Container[str] = frozenset()
    ) -> None:
        self._timed: dict[str, list[StoredTrial]] = defaultdict(list)
        self._failed: dict[str, list[TrialRecord]] = defaultdict(list)
        self._untimed: dict[str, dict[Kind, TrialRecord]] = defaultdict(dict)
        for pack in packs:
            for arm in pack.arms:
                every = (trial.record for trial in progress.timings(pack.id, arm))
                self._failed[arm] += [record for record in every if record.outcome is not Outcome.OK]
            used = (trial for number in range(len(pack.orders)) for trial in progress.used(pack, number))
            for trial in used:
                if trial.record.outcome is Outcome.OK and str(trial.folder) not in left_out:
                    self._timed[trial.record.arm].append(trial)
        for (arm, kind), trial in progress.other.items():
            self._untimed[arm][kind] = trial.record

    def all(self, arm: str) -> list[TrialRecord]:
        """Timing trials first, counted ones before failed ones, then the others."""
        return [*self.timed(arm), *self._failed.get(arm, ()), *self._untimed.get(arm, {}).values()]

    def timed(self, arm: str) -> list[TrialRecord]:
        """Timing trials that ended well and count."""
        return [trial.record for trial in self._timed.get(arm, ())]

    def every_timed(self) -> list[StoredTrial]:
        """Timing trials of all arms that ended well and count, with their folders."""
        return [trial for own in self._timed.values() for trial in own]

    def failed(self, arm: str) -> list[TrialRecord]:
        """Trials of any kind that did not end well, timing trials first."""
        return [record for record in self.all(arm) if record.outcome is not Outcome.OK]

    def median(self, arm: str, field: str) -> float | None:
        """Median of a field over the timing trials that ended well; None without any."""
        values = [float(getattr(record, field)) for record in self.timed(arm)]
        return median(values) if values else None

    def counters(self, arm: str) -> Counters | None:
        """What the arm's trials counted; None without a counting trial that ended well."""
        counting = self._untimed.get(arm, {}).get(Kind.COUNTING)
        if counting is None or counting.outcome is not Outcome.OK:
            return None
        return counters_of(counting, self.timed(arm))

    def beat(self, arm: str) -> Beat:
        """The heavy iterations of an arm's loop."""
        evidence, timed = self._untimed.get(arm, {}).get(Kind.EVIDENCE), self.timed(arm)
        heavy, share = (
            mean([record.quantities.get(name, 0.0) for record in timed] or [0.0])
            for name in ("heavy_iterations", "heavy_share")
        )
        return Beat(evidence is not None and evidence.cadence == 0, heavy, share)

    def growth(self, arm: str) -> tuple[float, float]:
        """By what share iterations of an arm's evidence became slower, and bytes that each of them added."""
        evidence = self._untimed.get(arm, {}).get(Kind.EVIDENCE)
        found = evidence.quantities if evidence else {}
        return found.get("time_growth", 0.0), found.get("memory_growth", 0.0)

    def cold_compile_s(self, arm: str) -> float | None:
        """Seconds of compiling with nothing compiled yet, which is how a counting trial starts."""
        counted = (self.counters(arm) or {}).get("compile_s")
        return counted if counted is not None else self.median(arm, "compile_s")

    def warm_compile_s(self, arm: str) -> float | None:
        """Seconds of compiling in a process that finds on disk what the sweep has compiled.

        Of timing trials. Evidence trials are deterministic, for which torch compiles again; a trial that is
        forked knows already what torch.compile asks once per process, a second or two.
        """
        return self.median(arm, "compile_s")

    def one_off_s(self, arm: str) -> float | None:
        """Median seconds of set-up and first iteration with nothing compiled before; None without times."""
        cold_s = self.cold_compile_s(arm) or 0.0
        costs = [
            record.setup_s + record.first_iteration_s + max(0.0, cold_s - record.compile_s)
            for record in self.timed(arm)
        ]
        return median(costs) if costs else None

    def device(self) -> Device:
        """The device that the trials ran on, as they recorded it."""
        for kinds in self._untimed.values():
            for record in kinds.values():
                if facts := record.environment.get("device"):
                    known = facts["capability"]
                    return Device(**{**facts, "capability": tuple(known) if known else None})
        return Device()


HOST_BOUND = 0.8
"""Below this share of the time the device waits for the host rather than the other way round."""

SCHEMA: dict[str, type[pl.DataType]] = {
    "arm": pl.String,
    "label": pl.String,
    "counter": pl.String,
    "value": pl.Float64,
}

Counters = Mapping[str, float | None]


@dataclass(frozen=True)
class CounterChange:
    """One counter of an arm that differs from the baseline's."""

    counter: str
    reference: float
    value: float

    @property
    def size(self) -> float:
        """Size of the change, as the absolute log ratio; appearing or vanishing counts most."""
        if self.reference <= 0 or self.value <= 0:
            return math.inf
        return abs(math.log(self.value / self.reference))


def counters_of(counting: TrialRecord, timings: Iterable[TrialRecord]) -> Counters:
    """Join an arm's counting trial with what only timing trials can count (the last of them)."""
    counters = dict(counting.counters)
    for record in timings:
        counters |= {name: record.counters[name] for name in FOUND_ON_DISK if name in record.counters}
    return counters


def counter_table(arms: Sequence[Arm], counters: Mapping[str, Counters | None]) -> pl.DataFrame:
    """One row for each arm and counter; a counter that could not be read is null."""
    rows = [
        {"arm": arm.id, "label": arm.label, "counter": name, "value": value}
        for arm in arms
        for name, value in sorted((counters.get(arm.id) or {}).items())
    ]
    return pl.DataFrame(rows, schema=SCHEMA)


NOISY = ("gc_", "compile_s", "device_busy_ns", "cache_")
"""Beginnings of counters that differ between two runs of the same arm."""


def counter_changes(reference: Counters | None, own: Counters | None) -> tuple[CounterChange, ...]:
    """List the counters that differ from the baseline's, furthest first; empty where one was not counted."""
    if reference is None or own is None:
        return ()
    both = ((name, reference.get(name), value) for name, value in own.items())
    changes = [
        CounterChange(name, before, value)
        for name, before, value in both
        if before is not None and value is not None and before != value
    ]
    return tuple(sorted(changes, key=lambda one: (-one.size, one.counter)))


def bound_by(busy_ns: float | None, wall_ns: float | None) -> str | None:
    """Say what an arm waits for: the device's work against its time; None where either is unknown."""
    if not busy_ns or not wall_ns:
        return None
    share = min(busy_ns / wall_ns, 1.0)
    who = "host-bound" if share < HOST_BOUND else "device-bound"
    return f"{who}: the device works {share:.0%} of the time"


Counts = Mapping[str, int]
"""Number of trials by outcome; outcomes that did not occur are left out."""


def outcome_counts(trials: pl.DataFrame) -> dict[str, dict[str, int]]:
    """Count the trials of each arm (id) of any kind, attempts that do not count included."""
    counts: dict[str, dict[str, int]] = {}
    grouped = trials.group_by("arm", "outcome").len()
    for outcome in Outcome:
        for arm, _, number in grouped.filter(pl.col("outcome") == outcome.value).iter_rows():
            counts.setdefault(arm, {})[outcome.value] = number
    return counts


def sum_counts(counts: Iterable[Counts]) -> dict[str, int]:
    """Add up the counts of several arms, in the order of the outcomes."""
    all_counts = list(counts)
    totals = {outcome.value: sum(one.get(outcome.value, 0) for one in all_counts) for outcome in Outcome}
    return {outcome: number for outcome, number in totals.items() if number}


def outcome_text(counts: Counts) -> str:
    """Say how trials ended: ``9 ok, 3 oom``."""
    return ", ".join(f"{number} {outcome}" for outcome, number in counts.items())


class Work(StrEnum):
    """What an iteration does when ranks are added."""

    STRONG = "strong"  # the same in all: each rank does less
    WEAK = "weak"  # the same for each rank
    OTHER = ""


@dataclass(frozen=True)
class Scaling:
    """Ranks of an arm and its base, and the gain in speed by that of ranks: 1 is perfect.

    `low` and `high` bound the efficiency as the effect's interval does, None where it has none.
    """

    ranks: int
    base_ranks: int
    work: Work
    efficiency: float
    low: float | None
    high: float | None


def ranks_of(records: ArmRecords, arm: str) -> int | None:
    """Ranks of an arm's timing trials; None without any."""
    timed = records.timed(arm)
    return (len(timed[0].ranks.nodes) if timed[0].ranks else 1) if timed else None


def scaling_of(
    effect: Effect, ratio: float | None, low: float | None, high: float | None, records: ArmRecords
) -> Scaling | None:
    """The scaling of an effect, from the ratio of its times and the ends of its interval.

    None where arm and base have equally many ranks, and for effects of many arms.
    """
    if ratio is None or effect.contrast or len(effect.pairs) != 1:
        return None
    ((arm, base),) = effect.pairs
    ranks, base_ranks = ranks_of(records, arm), ranks_of(records, base)
    if ranks is None or base_ranks is None or ranks <= base_ranks:
        return None
    more = ranks / base_ranks

    def efficiency(time: float | None) -> float | None:
        return 1 / time / more if time else None

    work = _work(_units_per_iteration(records, arm) / _units_per_iteration(records, base), more)
    return Scaling(ranks, base_ranks, work, 1 / ratio / more, efficiency(high), efficiency(low))


def _work(units: float, more: float) -> Work:
    """Tell the kinds apart by the units of an iteration, times those of the base."""
    named = {Work.STRONG: 1.0, Work.WEAK: more}
    return next((work for work, due in named.items() if math.isclose(units, due, rel_tol=0.01)), Work.OTHER)


def _units_per_iteration(records: ArmRecords, arm: str) -> float:
    return median(record.units / max(1, record.iterations) for record in records.timed(arm))
