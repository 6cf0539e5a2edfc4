"""What keeps a claim from a ruling: a device that cannot measure it, or a figure that was not measured.

A claim, or each of its arms through a level, may refuse a device with a sentence of its own. That sentence
proves nothing: an obstacle is one that stands on this device and whose removal, with all others removed too,
is what it takes.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from perfsweep.pipelines.statistics.claim_rules import Obstacle
from perfsweep.pipelines.store.records import TrialRecord
from perfsweep.workloads.api import Claim, Device, Levels, Toggle


def obstacles(claim: Claim, toggles: Sequence[Toggle], device: Device) -> tuple[Obstacle, ...]:
    """Find what stands between a claim and a ruling on this device; nothing where nothing refuses it.

    A claim that speaks of no arm and gives no bound is a rule, on any device.
    """
    if is_rule(claim):
        return (Obstacle.A_RULE,)
    if not refusal(claim, toggles, device):
        return ()
    standing = [obstacle for obstacle in Obstacle if obstacle.stands(device) and obstacle in FACTS_WITHOUT]
    needed = [
        one
        for one in standing
        if refusal(claim, toggles, device_without(device, [other for other in standing if other is not one]))
    ]
    return tuple(needed or standing)


def is_rule(claim: Claim) -> bool:
    """Whether a claim says how to measure, or what else to compute, instead of what comes out."""
    return not claim.arms and claim.figure is None and claim.low is None and claim.high is None


def refusal(claim: Claim, toggles: Sequence[Toggle], device: Device) -> str | None:
    """Say in a claim's or its levels' words why a device can rule on none of its arms; None where it can."""
    if reason := claim.unsupported(device):
        return reason
    reasons = [_levels_refusal(levels, toggles, device) for levels in claim.arms]
    return next(iter(reasons), None) if all(reasons) else None


def _levels_refusal(levels: Levels, toggles: Sequence[Toggle], device: Device) -> str | None:
    by_name = {toggle.name: toggle for toggle in toggles}
    for name, level in [(name, by_name[name].level(levels[name])) for name in levels if name in by_name]:
        if reason := level.unsupported(device):
            return f"{name}={level.value} {reason}"
    return None


def obstacle_text(standing: Iterable[Obstacle]) -> str:
    """Join obstacles: ``needs a CUDA device and needs several devices``."""
    return " and ".join(obstacle.value for obstacle in standing)


FACTS_WITHOUT: dict[Obstacle, dict[str, object]] = {
    Obstacle.NO_CUDA: {"type": "cuda", "memory_bytes": 10**12, "name": "any", "capability": (0, 0)},
    Obstacle.NO_TENSOR_CORES: {"capability": (10, 0)},
    Obstacle.ONE_DEVICE: {"count": 8},
    Obstacle.NO_COMPILER: {"compiler": True},
}
"""The facts of a device that an obstacle is about, as they are where it does not stand."""


def device_without(device: Device, lifted: Iterable[Obstacle]) -> Device:
    """A device on which some obstacles do not stand."""
    facts = {name: value for obstacle in lifted for name, value in FACTS_WITHOUT[obstacle].items()}
    return dataclasses.replace(device, **facts)  # type: ignore[arg-type]


Lookup = Callable[[str], float | None]
"""A counter or a number of one arm by its name; None where it was not counted."""

Timings = Sequence[TrialRecord]
"""Timing trials of one arm that ended well."""

RESULTS_KEPT = "results_kept"
"""1 where parity calls an arm's results the reference's, 0 where it calls them others; of those who judge
parity."""


def figure_value(name: str, lookup: Lookup, timings: Timings) -> float | None:
    """Compute the figure of an arm that a claim names: ``a+b``, ``a*b``, ``a/b`` of counters and numbers.

    None where something it needs was not measured, or it divides by zero.
    """
    for sign, combine in (("+", operator.add), ("/", operator.truediv), ("*", operator.mul)):
        first, _, second = name.rpartition(sign)
        if first:
            left, right = (figure_value(part, lookup, timings) for part in (first, second))
            if left is None or right is None or (sign == "/" and right == 0):
                return None
            return combine(left, right)
    derived = DERIVED_FIGURES.get(name)
    return derived(lookup, timings) if derived else lookup(name)


def _seconds_per_iteration(lookup: Lookup, timings: Timings) -> float | None:
    """Time of the timed region by its iterations, median over the trials."""
    seconds = [record.region_ns / 1e9 / record.iterations for record in timings if record.iterations]
    return median(seconds) if seconds else None


def _device_busy_share(lookup: Lookup, timings: Timings) -> float | None:
    """Share of the time in which any kernel runs: device time counted, by the wall time of timing trials."""
    busy_ns = lookup("device_busy_ns")
    wall_ns = [record.ns_per_unit for record in timings if record.units > 0]
    return busy_ns / median(wall_ns) if busy_ns is not None and wall_ns else None


def _warm_compile_s(lookup: Lookup, timings: Timings) -> float | None:
    """Median seconds of compiling in timing trials, with a cache on disk; `compile_s` is without it."""
    return median([record.compile_s for record in timings]) if timings else None


DERIVED_FIGURES: Mapping[str, Callable[[Lookup, Timings], float | None]] = {
    "seconds_per_iteration": _seconds_per_iteration,
    "device_busy_share": _device_busy_share,
    "warm_compile_s": _warm_compile_s,
}
"""Figures that any workload's claims may name beside its own counters and numbers."""
