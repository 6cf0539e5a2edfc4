"""Paired comparisons of steps: their percentiles, and the time to a target.

Log steps of an arm and of its base with one seed are taken as normal with one variance, and as correlated,
since they share data and initial values. A run that missed the target within the cap took more steps than
that, which is all that is known of it: such runs are censored, not dropped (Tobin 1958, for pairs). Without
any the estimate is the mean of the paired differences, and its error theirs, but never less than what lies
between two looks at a training leaves open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial.legendre import leggauss

from perfsweep.pipelines.statistics.estimates import Estimate, student_estimate

LEAST_SEEDS = 3
"""Seeds that both arms must have reached the target with: two leave one degree of freedom."""
MOST_MISSED = 0.2
"""Share of an arm's runs that may miss the target; of more, too much would rest on the shape of the tail."""

_SMALLEST_SD = 1e-3  # of log steps: seeds that agree to the step say nothing of the scatter
_STEP = 1e-4  # of numeric derivatives, in standardised parameters
_NODES, _WEIGHTS = leggauss(24)
_REACH = 8.0  # standard deviations beyond which a normal tail is nothing


@dataclass(frozen=True)
class PairedSteps:
    """Steps of an arm by those of its base: log ratio, standard error, and degrees of freedom of that."""

    log_ratio: float
    error: float
    degrees: float
    seeds: int


def paired_steps(
    arm: Sequence[float], base: Sequence[float], cap: float, every: float = 0.0
) -> PairedSteps | None:
    """Estimate the log ratio of steps to the target, by seed; infinite where a run missed it within `cap`.

    None where too few pairs reached it, or more than `MOST_MISSED` of the runs of either missed it. Trainings
    were looked at `every` so many steps; 0: after each one, and between two.
    """
    found = _estimate(arm, base, cap)
    return found and replace(found, error=max(found.error, _rounding(arm, base, every)))


def _rounding(arm: Sequence[float], base: Sequence[float], every: float) -> float:
    """Find the standard error that steps have which only looks tell, each uniform between two of them.

    Pairs that reached the target at the same two looks may all be rounded alike, so that they count as one.
    """
    pairs = [(a, b) for a, b in zip(arm, base, strict=True) if math.isfinite(a + b)]
    if not every or not pairs:
        return 0.0
    variance = every**2 / 12 * np.mean([a**-2 + b**-2 for a, b in pairs])
    return math.sqrt(variance / len(set(pairs)))


def _estimate(arm: Sequence[float], base: Sequence[float], cap: float) -> PairedSteps | None:
    """Estimate from the steps as they are."""
    logs = np.log(np.minimum(np.array([arm, base], float), cap))
    missed = np.isinf(np.array([arm, base], float))
    pairs = ~missed.any(axis=0)
    if pairs.sum() < LEAST_SEEDS or (missed.mean(axis=1) > MOST_MISSED).any():
        return None
    differences = logs[0] - logs[1]
    seeds = logs.shape[1]
    if not missed.any():
        error = float(differences.std(ddof=1)) / math.sqrt(seeds)
        return PairedSteps(float(differences.mean()), error, seeds - 1, seeds)
    if (missed[0] == missed[1]).all() and np.ptp(differences[pairs]) == 0:
        return PairedSteps(float(differences[pairs][0]), 0.0, pairs.sum() - 1.0, seeds)
    return _censored(logs, missed)


def _censored(logs: np.ndarray, missed: np.ndarray) -> PairedSteps:
    """Maximum likelihood of [2, seeds] log steps; where `missed`, a step is known to be more.

    Sums and differences of a pair are independent, so that the parameters are the means and deviations of
    either, in units of the scatter that capped values show.
    """
    from scipy.optimize import minimize  # late: scipy takes long to import on a busy host

    apart, both = logs[0] - logs[1], logs[0] + logs[1]
    scales = [max(float(values.std(ddof=1)), _SMALLEST_SD) for values in (apart, both)]
    shifts = [float(apart.mean()), float(both.mean())]

    def loss(parameters: np.ndarray) -> float:
        means = [shift + scale * one for shift, scale, one in zip(shifts, scales, parameters, strict=False)]
        deviations = [scale * math.exp(one) for scale, one in zip(scales, parameters[2:], strict=True)]
        return -_log_likelihood(logs, missed, means, deviations)

    limits = [(-10.0, 10.0)] * 2 + [(-3.0, 3.0)] * 2
    best = minimize(loss, np.zeros(4), method="L-BFGS-B", bounds=limits).x
    variance = float(np.linalg.pinv(_hessian(loss, best))[0, 0]) * scales[0] ** 2
    seeds = logs.shape[1]
    # A likelihood divides by all seeds; what is unbiased divides by one less. Pairs with a missed run say
    # less of the scatter than others.
    degrees = float((~missed.any(axis=0)).sum()) - 1
    error = math.sqrt(max(variance, 0.0) * seeds / (seeds - 1))
    return PairedSteps(shifts[0] + scales[0] * float(best[0]), error, degrees, seeds)


def _log_likelihood(
    logs: np.ndarray, missed: np.ndarray, means: Sequence[float], deviations: Sequence[float]
) -> float:
    """Of differences and sums with these means and deviations."""
    from scipy.special import log_ndtr

    apart, both = (deviation**2 for deviation in deviations)
    centre = np.array([(means[1] + means[0]) / 2, (means[1] - means[0]) / 2])[:, None]
    variance, shared = (both + apart) / 4, (both - apart) / 4  # of a log step, and of the two of a pair
    sd, slope = math.sqrt(variance), shared / variance
    rest = math.sqrt(max(variance - shared * slope, 1e-12))  # of one, where the other is known
    z = (logs - centre) / sd
    total = 0.0
    for own in (0, 1):
        alone = missed[own] & ~missed[1 - own]
        known = z[1 - own, alone]
        beyond = (z[own, alone] - slope * known) * sd / rest
        total += float((-(known**2) / 2 - math.log(sd) + log_ndtr(-beyond)).sum())
    seen = ~missed.any(axis=0)
    difference, total_log = logs[0, seen] - logs[1, seen], logs[0, seen] + logs[1, seen]
    for values, mean, deviation in zip((difference, total_log), means, deviations, strict=True):
        total -= float((((values - mean) / deviation) ** 2 / 2 + math.log(deviation)).sum())
    for column in np.flatnonzero(missed.all(axis=0)):
        total += _both_beyond(z[0, column], z[1, column], slope, rest / sd)
    return total


def _both_beyond(first: float, second: float, slope: float, rest: float) -> float:
    """Log probability that two correlated standard normals lie beyond these values, by Gauss-Legendre."""
    from scipy.special import log_ndtr

    low = max(second, -_REACH)
    span = max(_REACH - low, 1.0)
    nodes = low + span * (_NODES + 1) / 2
    inner = log_ndtr((slope * nodes - first) / rest) - nodes**2 / 2 - math.log(2 * math.pi) / 2
    return float(np.log(max((np.exp(inner) * _WEIGHTS).sum() * span / 2, 1e-300)))


def _hessian(function, at: np.ndarray) -> np.ndarray:
    """Second derivatives by central differences."""
    size, step = len(at), np.sqrt(_STEP)
    steps = np.eye(size) * step
    found = np.zeros((size, size))
    for i in range(size):
        for j in range(i, size):
            corners = [function(at + s * steps[i] + t * steps[j]) * s * t for s in (1, -1) for t in (1, -1)]
            found[i, j] = found[j, i] = sum(corners) / (4 * step**2)
    return found


LEAST_STEPS = 300
"""Steps of a region below which its 99th percentile lies among fewer than three: it would be a maximum."""
SLOW = 95.0
"""Percentile beyond which steps count as slow where the time that they took more is told apart."""
UNMARKED = "outside phases"


def percentile(times_ns: np.ndarray, at: float) -> float:
    """Estimate a percentile of step times [N]; nearly median-unbiased for any distribution.

    Hyndman and Fan (1996), type 8: the usual linear interpolation puts p99 of 300 steps at p98.7.
    """
    return float(np.percentile(times_ns, at, method="median_unbiased"))


def excess_of_slow_steps(times_ns: np.ndarray, phases: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Time in ns that slow steps [N] took beyond the median step, by the phase [N] that took it.

    What no phase marks is `UNMARKED`. A phase that was quicker than usual has less than nothing.
    """
    slow = times_ns > percentile(times_ns, SLOW)
    if not slow.any():
        return {}
    excess = {name: _beyond(own, slow) for name, own in phases.items()}
    return {**excess, UNMARKED: _beyond(times_ns, slow) - sum(excess.values())}


def _beyond(times_ns: np.ndarray, slow: np.ndarray) -> float:
    return float((times_ns[slow] - np.median(times_ns[~slow])).sum())


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
