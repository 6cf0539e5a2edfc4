"""Which of the chosen columns a plan cannot fill: known before anything is measured."""

from __future__ import annotations

from pipelines.config.declared import declared_by
from pipelines.statistics.step_percentiles import LEAST_STEPS
from pipelines.store.records import Manifest

PERCENTILES = ("p50", "p95", "p99")


def unfilled_columns(manifest: Manifest) -> list[str]:
    """Name the percentiles that trials are too short for, and the iterations that would do.

    Nothing is said of jobs, whose length only they know.
    """
    asked = [name for name in dict.fromkeys(manifest.sweep.columns) if name in PERCENTILES]
    planned = manifest.sweep.measure.iterations
    if not asked or planned >= LEAST_STEPS or declared_by(manifest).shape == "job":
        return []
    # The cadence, to which iterations are rounded up, is known once the workload is set up.
    return [
        f"report.columns=[{','.join(asked)}]: percentiles need {LEAST_STEPS} steps in each round, and"
        f" measure.iterations={planned} asks for fewer, so that they will be withheld unless the workload's"
        f" cadence is as long; measure.iterations={LEAST_STEPS} would do"
    ]
