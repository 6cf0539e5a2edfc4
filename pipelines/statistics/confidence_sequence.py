"""Intervals of a mean that hold at all sample sizes at once, so that looking at them may end a sweep.

Of n normal differences with mean m and standard error e (the root of their variance over n), the variance
unknown. Under a variance with the prior of Jeffreys and a mean of N(0, 1/r) standard deviations, against a
mean of zero, the likelihood ratio is, with t = m / e,

    E(n) = sqrt(r / (n + r)) [(1 + t^2 / (n - 1)) / (1 + t^2 r / ((n + r) (n - 1)))]^(n / 2)

It depends on the ratios of the differences to one another only, whose distribution is free of the variance: a
martingale that starts at one, and by Ville's inequality ever reaches 1/alpha with probability alpha at most.
The means that it does not rule out, put in place of zero, are the interval. Robbins' mixture (1970) with the
estimated variance in place of a known one has no such bound: small samples whose variance is estimated too
small are many.

Sources: Lai 1976, *On confidence sequences*, Annals of Statistics 4; Wang and Ramdas 2023, *Anytime-valid
t-tests and confidence sequences for Gaussian means with unknown variance*, arXiv 2310.03722.
"""

from __future__ import annotations

import math

PRIOR = 0.1
"""r: means of three standard deviations are what it looks for, as only those can be told after few values."""


def half_width(error: float, n: int, level: float) -> float:
    """Half the width of the interval around the mean; infinite as long as nothing is ruled out."""
    inverse = ((n + PRIOR) / (PRIOR * (1 - level) ** 2)) ** (1 / n)
    below = 1 - inverse * PRIOR / (n + PRIOR)
    return error * math.sqrt((n - 1) * (inverse - 1) / below) if below > 0 else math.inf


def p_value(mean: float, error: float, n: int) -> float:
    """1 / E(n), at most one: a p that may be looked at after every value."""
    within, between = (n - 1) * error**2, mean**2
    if not within + between:
        return 1.0
    ratio = (within + between) / (within + between * PRIOR / (n + PRIOR))
    return min(1.0, math.sqrt((n + PRIOR) / PRIOR) * ratio ** (-n / 2))
