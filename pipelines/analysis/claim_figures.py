"""Figures that claims speak of: counters and evidence of an arm, ratios of two of them, and what its timings
give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from pipelines.store.records import TrialRecord

Lookup = Callable[[str], float | None]
"""A counter or a number of one arm by its name; None where it was not counted."""

Timings = Sequence[TrialRecord]
"""Timing trials of one arm that ended well."""


RESULTS_KEPT = "results_kept"
"""1 where parity found an arm's results to be the reference's, 0 where it found others; of those who judge
parity."""


def figure(name: str, lookup: Lookup, timings: Timings) -> float | None:
    """A figure of one arm; ``a/b`` is the ratio of two. None where something it needs was not measured, or
    divides by zero."""
    over, _, under = name.partition("/")
    if under:
        values = figure(over, lookup, timings), figure(under, lookup, timings)
        return values[0] / values[1] if values[0] is not None and values[1] else None
    derived = DERIVED.get(name)
    return derived(lookup, timings) if derived else lookup(name)


def _seconds_per_iteration(lookup: Lookup, timings: Timings) -> float | None:
    """Time of the timed region by its iterations, median over the trials."""
    found = [record.region_ns / 1e9 / record.iterations for record in timings if record.iterations]
    return median(found) if found else None


def _device_busy_share(lookup: Lookup, timings: Timings) -> float | None:
    """Share of the time in which any kernel runs: the counting trial's device time by the timing trials' wall
    time."""
    busy_ns = lookup("device_busy_ns")
    wall_ns = [record.ns_per_unit for record in timings if record.units > 0]
    return busy_ns / median(wall_ns) if busy_ns is not None and wall_ns else None


def _warm_compile_s(lookup: Lookup, timings: Timings) -> float | None:
    """Seconds of compiling in timing trials, median, with what their sweep keeps on disk; `compile_s` is
    without it."""
    return median([record.compile_s for record in timings]) if timings else None


DERIVED: Mapping[str, Callable[[Lookup, Timings], float | None]] = {
    "seconds_per_iteration": _seconds_per_iteration,
    "device_busy_share": _device_busy_share,
    "warm_compile_s": _warm_compile_s,
}
"""Figures that any workload's claims may name beside its own counters and numbers."""
