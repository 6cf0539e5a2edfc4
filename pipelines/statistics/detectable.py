"""The smallest effect that a number of servers and rounds finds with 80 % power."""

from __future__ import annotations

import math

from perfsweep.pipelines.statistics.estimates import ALPHA

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
