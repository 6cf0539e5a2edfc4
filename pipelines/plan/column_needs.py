"""Which of the chosen columns a plan cannot fill: known before anything is measured."""

from __future__ import annotations

from perfsweep.pipelines.statistics.paired_steps import LEAST_STEPS
from perfsweep.pipelines.store.declared import declared_by
from perfsweep.pipelines.store.records import Manifest

PERCENTILES = ("p50", "p95", "p99")


def unfilled_columns(manifest: Manifest) -> list[str]:
    """Say of the chosen columns that will stay empty what they need."""
    return [*_without_setting(manifest), *_of_too_few_steps(manifest)]


def _without_setting(manifest: Manifest) -> list[str]:
    """Name the columns whose setting is not given."""
    target = "no target is named to train to; give measure.target, and measure.target_figure"
    price = "no price is given; give cluster.price, now, or with the same command later"
    missing = {
        ("target", "target_steps"): target if manifest.sweep.measure.target is None else "",
        ("cost", "job_cost"): "" if manifest.sweep.price else price,
    }
    return [
        f"{_columns(asked)}: {why}"
        for names, why in missing.items()
        if why and (asked := [name for name in names if name in manifest.sweep.columns])
    ]


def _of_too_few_steps(manifest: Manifest) -> list[str]:
    """Name the percentiles that trials are too short for, and the iterations that would do.

    Nothing is said of jobs, whose length only they know.
    """
    asked = [name for name in dict.fromkeys(manifest.sweep.columns) if name in PERCENTILES]
    planned = manifest.sweep.measure.iterations
    if not asked or planned >= LEAST_STEPS or declared_by(manifest).shape == "job":
        return []
    # The cadence, to which iterations are rounded up, is known once the workload is set up.
    return [
        f"{_columns(asked)}: percentiles need {LEAST_STEPS} steps in each round, and"
        f" measure.iterations={planned} asks for fewer, so that they will be withheld unless the workload's"
        f" cadence is as long; measure.iterations={LEAST_STEPS} would do"
    ]


def _columns(names: list[str]) -> str:
    return f"report.columns=[{','.join(names)}]"
