"""How much each answer token of an effective batch counts in each loss: denominators are the batch's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def term_weights(lengths: Sequence[int], answer_tokens: int, early_tokens: int) -> np.ndarray:
    """Weight of every l_ij in the teacher-forced, first-token and early-token losses [3, B, T], float64.

    `lengths` are the answers' of the whole effective batch, each with its end.
    """
    n = np.asarray(lengths)[:, None]
    real = (np.arange(answer_tokens)[None] < n).astype(np.float64)
    forced = real / real.sum()
    first = np.zeros_like(real)
    first[:, 0] = 1 / len(lengths)
    return np.stack([forced, first, _early(real, early_tokens)])


def _early(real: np.ndarray, early_tokens: int) -> np.ndarray:
    """Mean over the early tokens that anybody has, of the mean over the rows that have it [B, T]."""
    counts = real.sum(axis=0)
    counts[early_tokens:] = 0
    present = counts > 0
    weights = np.zeros_like(real)
    weights[:, present] = real[:, present] / counts[present] / present.sum()
    return weights
