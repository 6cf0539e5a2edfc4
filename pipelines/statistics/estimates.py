"""Estimates and intervals of paired comparisons.

Effects are log ratios, log(time of the arm / time of its base): natural logarithms, negative is faster, -0.10
is 9.5 % less time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95
ALPHA = 1 - LEVEL


class Method(StrEnum):
    """Where an interval comes from."""

    POOLED = "pooled variance"
    SEQUENCE = "confidence sequence"
    NONE = "none"


@dataclass(frozen=True)
class Interval:
    """Bounds of a log ratio, and the confidence they were made for."""

    low: float
    high: float
    level: float = LEVEL

    @property
    def half_width(self) -> float:
        """Half the distance of the bounds."""
        return (self.high - self.low) / 2

    @property
    def ratios(self) -> tuple[float, float]:
        """Bounds of time of the arm / time of the base: 0.5 is half the time."""
        return math.exp(self.low), math.exp(self.high)

    @property
    def speed(self) -> tuple[float, float]:
        """Bounds of the speed ratio, time of the base / time of the arm: 2.0 is twice as fast."""
        return math.exp(-self.high), math.exp(-self.low)


@dataclass(frozen=True)
class Estimate:
    """An effect with its uncertainty: never a bare number.

    Attributes
    ----------
    log_ratio : robust estimate; nan without a pair
    interval, p : at the plain level, and two-sided against no effect; None where too little was measured
    n : replications: servers, or rounds where each of them is one
    reason : in words, why there is no interval
    error, degrees : standard error of the log ratio, and the degrees of freedom it is known with
    rounds : that measured all arms of the effect
    """

    log_ratio: float
    interval: Interval | None
    p: float | None
    method: Method
    n: int
    reason: str = ""
    error: float | None = None
    degrees: float = 0.0
    rounds: int = 0

    def at(self, level: float) -> Interval | None:
        """The interval at another level, by the same method."""
        if self.error is None:
            return None
        if self.method is Method.SEQUENCE:
            half = sequence_half_width(self.error, self.n, level)
            return Interval(self.log_ratio - half, self.log_ratio + half, level)
        return _student_interval(self.log_ratio, self.error, self.degrees, level)


def student_estimate(log_ratio: float, error: float, degrees: float, n: int, rounds: int) -> Estimate:
    """Estimate an effect from its standard error over n replications: Student's interval and p."""
    p = _student_p(log_ratio, error, degrees)
    interval = _student_interval(log_ratio, error, degrees, LEVEL)
    return Estimate(log_ratio, interval, p, Method.POOLED, n, "", error, degrees, rounds)


def sequence_estimate(log_ratios: np.ndarray, rounds: int) -> Estimate:
    """Estimate an effect from one log ratio for each replication, at least two: valid whenever one stops."""
    n, mean = len(log_ratios), float(log_ratios.mean())
    error = float(log_ratios.std(ddof=1)) / math.sqrt(n)
    p = sequence_p(mean, error, n)
    found = Estimate(mean, None, p, Method.SEQUENCE, n, "", error, n - 1, rounds)
    return replace(found, interval=found.at(LEVEL))


@dataclass(frozen=True)
class Apart:
    """When an effect is so clear that its arm leaves a sweep early, and is judged by how it left.

    Its confidence sequence lies wholly beyond the `margin` (a log ratio) at the level of Bonferroni for so
    many `comparisons`. Student's interval would be read where it happens to lie far out.
    """

    margin: float
    comparisons: int

    def holds(self, sequence: Estimate, beyond: float = 0.0) -> bool:
        """Whether an estimate by a confidence sequence is beyond the margin, and beyond another log ratio."""
        interval, margin = sequence.at(1 - ALPHA / self.comparisons), max(self.margin, beyond)
        return interval is not None and (interval.low > margin or interval.high < -margin)


def reach(estimates: Iterable[Estimate]) -> float:
    """How far from equal the intervals of some comparisons reach, as a log ratio; 0 without any."""
    intervals = (estimate.interval for estimate in estimates)
    return max((max(abs(one.low), abs(one.high)) for one in intervals if one), default=0.0)


def no_estimate(log_ratios: ArrayLike) -> Estimate:
    """Estimate what at most one replication says: a number at best, and no interval."""
    values = np.asarray(log_ratios, float)
    if len(values):
        reason = "one round has no interval; measure at least three"
        return Estimate(float(values.mean()), None, None, Method.NONE, 1, reason, rounds=1)
    reason = "no round measured both the arm and its base"
    return Estimate(math.nan, None, None, Method.NONE, 0, reason)


@dataclass(frozen=True)
class HolmStep:
    """One p value in Holm's step-down procedure.

    Attributes
    ----------
    level : confidence at which the interval of this comparison is read
    rejected : whether no effect is rejected, which needs all smaller p to be rejected too
    """

    level: float
    rejected: bool


def holm(ps: Sequence[float | None], alpha: float = ALPHA) -> list[HolmStep]:
    """Holm's procedure (1979) over all comparisons of a sweep, in given order; None is one without a p."""
    values = [1.0 if p is None else p for p in ps]
    steps: dict[int, HolmStep] = {}
    rejecting = True
    for done, index in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        # Where the smallest k are true effects only m - k nulls are left to guard against: no power is lost.
        share = alpha / (len(values) - done)
        rejecting = rejecting and values[index] <= share
        steps[index] = HolmStep(1 - share, rejecting)
    return [steps[index] for index in range(len(values))]


def rounds_to_decide(estimate: Estimate, margin: float) -> int | None:
    """Rounds until the interval clears the margin's nearer edge: rounds (half-width / distance)^2.

    None where no number of rounds would: no interval yet, or an estimate on the edge itself.
    """
    distance = abs(abs(estimate.log_ratio) - margin)
    if estimate.interval is None or distance == 0:
        return None
    # A half-width shrinks with the square root of the rounds.
    rounds = estimate.rounds or estimate.n
    return max(rounds + 1, math.ceil(rounds * (estimate.interval.half_width / distance) ** 2))


def break_even(one_off_arm_s: float, one_off_base_s: float, t_arm_s: float, t_base_s: float) -> float | None:
    """Iterations after which what an arm costs once is repaid by what it saves each time.

    None where nothing is to be repaid: the arm costs no more than its base, or saves nothing.
    """
    cost, saving = one_off_arm_s - one_off_base_s, t_base_s - t_arm_s
    return cost / saving if cost > 0 and saving > 0 else None


def precise_enough(estimate: Estimate, target: float) -> bool:
    """Whether rounds may stop: the half-width, and nothing else, has reached the target.

    Stopping on it costs the 95 % interval two points of coverage where the target is reached only after many
    rounds: samples that happen to be narrow stop early. Never stop on the verdict or its p: at p < 0.05 two
    equal arms would differ in 23 % of sweeps.
    """
    return estimate.interval is not None and estimate.interval.half_width <= target


def _student_interval(centre: float, error: float, degrees: float, level: float) -> Interval:
    from scipy.special import stdtrit  # scipy.stats takes seconds to import on a busy host

    half = float(stdtrit(degrees, (1 + level) / 2)) * error
    return Interval(centre - half, centre + half, level)


def _student_p(centre: float, error: float, degrees: float) -> float:
    from scipy.special import stdtr

    if error == 0:
        return 1.0 if centre == 0 else 0.0
    return 2 * float(stdtr(degrees, -abs(centre) / error))


POWER = 0.8


def pair_error(replications: int, rounds: float, pair_sd: float, layout_sd: float = 0.0) -> float:
    """Standard error of a log ratio over replications (servers) of so many rounds each.

    `pair_sd` is the spread of a pair's log ratio within a server, `layout_sd` that of the server's own part,
    which more rounds of the same server do not make smaller.
    """
    return math.sqrt((pair_sd**2 / rounds + layout_sd**2) / replications)


def detectable_effect(error: float, degrees: float, comparisons: int = 1) -> float:
    """Log ratio that is found with 80 % power, from its standard error; infinite without degrees of freedom.

    With several comparisons it is the effect that Holm finds first.
    """
    if degrees <= 0:
        return math.inf
    from scipy.special import stdtrit

    # The interval must clear zero, and 80 % of estimates must lie that far out: two quantiles add up.
    return error * float(stdtrit(degrees, 1 - ALPHA / comparisons / 2) + stdtrit(degrees, POWER))


_LEAST_SEEDS = 3  # two leave one degree of freedom and an interval of 12.7 standard errors


@dataclass(frozen=True)
class Equivalence:
    """The mean of paired differences with its 90 % interval, against a margin.

    `equivalent` is True with the interval inside the margin, False with it wholly beyond, None between.
    """

    equivalent: bool | None
    mean: float
    low: float
    high: float
    margin: float
    seeds: int
    seeds_needed: int


def tost(differences: Sequence[float], margin: float) -> Equivalence:
    """Two one-sided tests at 5 % each (Schuirmann 1987) on one difference for each pair of seeds.

    Not showing a difference is no evidence of none, so small samples are undecided, not equivalent.
    `seeds_needed` = ((1.65 + 1.28) sd / margin)^2 + 2 pairs show equality with power 0.9. A difference that
    is not finite decides nothing.
    """
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2 or not np.isfinite(values).all():
        mean = float(values.mean()) if len(values) else math.nan
        return Equivalence(None, mean, -math.inf, math.inf, margin, len(values), _LEAST_SEEDS)
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    half = _t_quantile(len(values) - 1) * deviation / math.sqrt(len(values))
    low, high = mean - half, mean + half
    needed = max(_LEAST_SEEDS, math.ceil(((1.65 + 1.28) * deviation / margin) ** 2 + 2))
    return Equivalence(_inside(low, high, margin), mean, low, high, margin, len(values), needed)


def _inside(low: float, high: float, margin: float) -> bool | None:
    if -margin < low and high < margin:
        return True
    return False if low > margin or high < -margin else None


def _t_quantile(freedom: int) -> float:
    """95 % quantile of Student's t."""
    from scipy.special import stdtrit  # late: only sweeps with stochastic levels need it

    return float(stdtrit(freedom, 0.95))


PRIOR = 0.1
"""r: means of three standard deviations are what it looks for, as only those can be told after few values."""


def sequence_half_width(error: float, n: int, level: float) -> float:
    """Half the width of an interval of a mean that holds at all sample sizes at once; infinite as long as
    nothing is ruled out. Looking at such intervals may end a sweep.

    Of n normal differences with mean m and standard error e (the root of their variance over n), the variance
    unknown. Under a variance with the prior of Jeffreys and a mean of N(0, 1/r) standard deviations, against
    a mean of zero, the likelihood ratio is, with t = m / e,

        E(n) = sqrt(r / (n + r)) [(1 + t^2 / (n - 1)) / (1 + t^2 r / ((n + r) (n - 1)))]^(n / 2)

    It depends on the ratios of the differences to one another only, whose distribution is free of the
    variance: a martingale that starts at one, and by Ville's inequality ever reaches 1/alpha with probability
    alpha at most. The means that it does not rule out, put in place of zero, are the interval. Robbins'
    mixture (1970) with the estimated variance in place of a known one has no such bound: small samples whose
    variance is estimated too small are many.

    Sources: Lai 1976, *On confidence sequences*, Annals of Statistics 4; Wang and Ramdas 2023,
    *Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance*, arXiv
    2310.03722.
    """
    inverse = ((n + PRIOR) / (PRIOR * (1 - level) ** 2)) ** (1 / n)
    below = 1 - inverse * PRIOR / (n + PRIOR)
    return error * math.sqrt((n - 1) * (inverse - 1) / below) if below > 0 else math.inf


def sequence_p(mean: float, error: float, n: int) -> float:
    """1 / E(n) of `sequence_half_width`, at most one: a p that may be looked at after every value."""
    within, between = (n - 1) * error**2, mean**2
    if not within + between:
        return 1.0
    ratio = (within + between) / (within + between * PRIOR / (n + PRIOR))
    return min(1.0, math.sqrt((n + PRIOR) / PRIOR) * ratio ** (-n / 2))
