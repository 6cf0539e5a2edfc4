"""Counters of the counting trials as a table, and where an arm's differ from the reference's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from perfsweep.pipelines.store.records import Arm, TrialRecord
from perfsweep.pipelines.trial.compile_cache import FOUND_ON_DISK

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
    """One counter of an arm that differs from the reference's."""

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


def counter_changes(reference: Counters | None, own: Counters | None) -> tuple[CounterChange, ...]:
    """List the counters that differ from the reference's, furthest first; empty where one was not counted."""
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
