"""Notes on what the kernel and the machine did: part of a difference in time is their doing."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

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
    """Name the arms whose faults or system time differ from those of the reference (its id)."""
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
        f"the machine itself was up to {max(slow) - 1:.0%} slower in {len(slow)} of {used.height} timing"
        " trials: a fixed piece of work before them took so much longer"
    ]


def _apart(values: Mapping[str, float], reference: str, allowed: float) -> list[str]:
    """The arms furthest from the reference, of those beyond what is allowed."""
    if reference not in values:
        return []
    distance = {arm: abs(value - values[reference]) for arm, value in values.items()}
    return sorted((arm for arm in values if distance[arm] > allowed), key=lambda arm: -distance[arm])[:NAMED]
