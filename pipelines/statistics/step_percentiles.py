"""Percentiles of the steps of one region, and which part of slow steps took their time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

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
