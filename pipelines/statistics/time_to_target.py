"""Time to a target: steps over paired seeds times the time of a step over paired rounds, as one estimate."""

from __future__ import annotations

from perfsweep.pipelines.statistics.estimates import Estimate, student_estimate
from perfsweep.pipelines.statistics.paired_steps import PairedSteps


def time_to_target(steps: PairedSteps, times: Estimate, work_shift: float = 0.0) -> Estimate | None:
    """Estimate the log ratio of times to the target: log ratios add up, and so do their variances.

    Seeds and rounds are drawn apart, so that neither says anything of the other; degrees of freedom are
    Satterthwaite's (1946). None where too few rounds tell the error of the times.

    Parameters
    ----------
    times : of one unit
    work_shift : log ratio of the units of a step, where arms do not do the same in one
    """
    if times.error is None:
        return None
    parts = ((steps.error**2, steps.degrees), (times.error**2, times.degrees))
    variance = sum(part for part, _ in parts)
    spread = sum(part**2 / degrees for part, degrees in parts)
    freedom = variance**2 / spread if spread else min(steps.degrees, times.degrees)
    log_ratio = steps.log_ratio + times.log_ratio + work_shift
    return student_estimate(log_ratio, variance**0.5, freedom, steps.seeds, times.rounds)


def steps_to_target(steps: PairedSteps) -> Estimate:
    """Estimate the log ratio of the steps alone."""
    return student_estimate(steps.log_ratio, steps.error, steps.degrees, steps.seeds, steps.seeds)
