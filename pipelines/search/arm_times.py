"""Times of many arms in rounds of several packs -> a log time per arm, against a reference in all packs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfsweep.pipelines.statistics.log_ratios import Cell

LEAST_SD = 0.005
"""Least standard deviation of one log time: a few rounds may agree by luck."""
HUBER_THRESHOLD = 2.0
"""Residuals beyond so many scales lose weight (Huber 1964)."""
REWEIGHTINGS = 20


@dataclass(frozen=True)
class LogTime:
    """Log of an arm's time over the reference's, and the variance of that estimate."""

    value: float
    variance: float


def log_times(cells: Sequence[Cell], reference: str) -> dict[str, LogTime]:
    """Fit log time = arm + round by least squares that outlying rounds pull little on.

    A round is slow or fast for all arms in it, so that arms of different packs compare through the arms which
    their packs have in common. An arm that no chain of shared rounds joins to the reference has no estimate.
    """
    arms = list(dict.fromkeys([reference, *(cell.arm for cell in cells)]))
    rounds = list(dict.fromkeys((cell.pack, cell.number) for cell in cells))
    if not any(cell.arm == reference for cell in cells):
        return {}
    design = np.zeros((len(cells), len(arms) + len(rounds)))
    for row, cell in enumerate(cells):
        design[row, [arms.index(cell.arm), len(arms) + rounds.index((cell.pack, cell.number))]] = 1
    fitted, scatter = _huber(design, np.log([cell.value for cell in cells]))
    count = {arm: sum(cell.arm == arm for cell in cells) for arm in arms}
    joined = _joined(cells, reference)
    return {
        arm: LogTime(float(fitted[i] - fitted[0]), scatter**2 / count[arm])
        for i, arm in enumerate(arms)
        if arm in joined
    }


def _huber(design: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float]:
    """Coefficients and the standard deviation of one value, by reweighted least squares."""
    weights = np.ones(len(values))
    fitted = np.zeros(design.shape[1])
    for _ in range(REWEIGHTINGS):
        root = np.sqrt(weights)
        fitted = np.linalg.lstsq(design * root[:, None], values * root, rcond=None)[0]
        off = np.abs(values - design @ fitted)
        # 1.483 times the median deviation of normal values is their standard deviation.
        scale = max(LEAST_SD, 1.483 * float(np.median(off)))
        weights = np.minimum(1.0, HUBER_THRESHOLD * scale / np.maximum(off, 1e-12))
    # Arms and rounds overlap in one column: the rank, not the number of columns, counts what was fitted.
    free = len(values) - np.linalg.matrix_rank(design)
    square = float((weights * (values - design @ fitted) ** 2).sum())
    return fitted, max(LEAST_SD, float(np.sqrt(square / free)) if free > 0 else LEAST_SD)


def _joined(cells: Sequence[Cell], reference: str) -> set[str]:
    """The reference and every arm that rounds join to it, from arm to arm; empty where it stands alone."""
    together: dict[tuple[str, int], set[str]] = {}
    for cell in cells:
        together.setdefault((cell.pack, cell.number), set()).add(cell.arm)
    joined = {reference}
    while grown := {arm for arms in together.values() if arms & joined for arm in arms - joined}:
        joined |= grown
    return joined if len(joined) > 1 else set()
