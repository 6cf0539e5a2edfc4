"""Log times as arm + round, fitted so that a spike moves neither.

Iteratively reweighted least squares with Tukey's bisquare, which forgets a trial that took half as long
again, where Huber's weights only bound its pull. What is handed on are *pseudo-values* (Huber and Ronchetti,
Robust Statistics, 2009, section 7.6): numbers that scatter as the estimate does, so that whatever follows may
take plain means and mean squares.
"""

from __future__ import annotations

import math

import numpy as np

TUNING = 10.0
"""Residuals beyond so many scales count for nothing; at ten, normal noise loses under 1 % of efficiency."""
STEPS = 20
LEAST_DEGREES = 4
"""Residual degrees of freedom below which nothing can be told to be a spike: least squares."""
_NORMAL_MAD = 1.4826  # times the median absolute deviation of normal values is their standard deviation


def pseudo_values(log_values: np.ndarray) -> np.ndarray:
    """Take the rounds out of [arms, rounds] log values: what each cell says of its arm; nan stays nan.

    An arm's mean is its robust level up to a constant of the table, so only differences between arms mean
    something.
    """
    there = np.isfinite(log_values)
    values = np.where(there, log_values, 0.0)
    levels, residuals = _additive(values, there.astype(float))
    degrees = there.sum() - sum(there.shape) + 1
    if degrees >= LEAST_DEGREES:
        loss = math.sqrt(there.sum() / degrees)  # fitted residuals are smaller than the noise
        levels, residuals = _bisquare(values, there, _polished(log_values), loss)
    # Equal figures part in the last bits of a float, which no clock measures.
    return np.where(there, np.round(levels[:, None] + residuals, 12), np.nan)


def _additive(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Arm levels and residuals of the weighted least squares fit of [arms, rounds]."""
    columns = weights.sum(axis=0)
    means = (weights * values).sum(axis=0) / columns
    normal = np.diag(weights.sum(axis=1)) - (weights / columns) @ weights.T
    # The rounds are eliminated; that leaves one free constant, and lstsq takes the smallest levels.
    levels = np.linalg.lstsq(normal, (weights * (values - means)).sum(axis=1), rcond=None)[0]
    apart = values - levels[:, None]
    return levels, apart - (weights * apart).sum(axis=0) / columns


def _polished(log_values: np.ndarray) -> np.ndarray:
    """Residuals after Tukey's median polish: a start that spikes have not spoilt."""
    median = np.median if np.isfinite(log_values).all() else np.nanmedian
    residuals = log_values
    for _ in range(3):
        residuals = residuals - median(residuals, axis=1, keepdims=True)
        residuals = residuals - median(residuals, axis=0, keepdims=True)
    return residuals


def _bisquare(
    values: np.ndarray, there: np.ndarray, start: np.ndarray, loss: float
) -> tuple[np.ndarray, np.ndarray]:
    """Arm levels and pseudo-residuals; the plain fit where more than half of the cells agree exactly."""
    levels, residuals = _additive(values, there.astype(float))
    scales = _scales(start, there, loss)
    if not scales.all():
        return levels, residuals
    current = np.where(there, start, 0.0)
    for _ in range(STEPS):
        inside = np.clip(1 - (current / scales / TUNING) ** 2, 1e-3, None)
        before, (levels, current) = levels, _additive(values, there * inside**2)
        if np.ptp(levels - before) < 1e-4 * scales.min():
            break
        scales = _scales(np.where(there, current, np.nan), there, loss)
    return levels, scales * _pseudo_residuals(current / scales, there)


def _scales(residuals: np.ndarray, there: np.ndarray, loss: float) -> np.ndarray:
    """[arms, 1] scale of each arm's noise: the table's, or its own where that is larger."""
    off = np.abs(residuals)
    own = np.nanmedian(off, axis=1, keepdims=True)
    return _NORMAL_MAD * loss * np.maximum(own, np.median(off[there]))


def _pseudo_residuals(u: np.ndarray, there: np.ndarray) -> np.ndarray:
    """psi(u) / mean psi'(u), widened for the arms and rounds that were fitted (Huber's correction)."""
    square = (u / TUNING) ** 2
    psi = np.where(square < 1, u * (1 - square) ** 2, 0.0)
    slopes = np.where(square < 1, (1 - square) * (1 - 5 * square), 0.0)[there]
    fitted = (sum(there.shape) - 1) / there.sum()
    slope = max(float(slopes.mean()), 0.5)
    return psi * (1 + fitted * slopes.var() / slope**2) / slope
