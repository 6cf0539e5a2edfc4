"""Latents on which first-order certificates are blind: offsets, constants, rare and mixed values."""

from __future__ import annotations

import numpy as np

ROWS = 600
OFFSETS = (1e1, 1e2, 1e3, 1e4, 1e5, 1e6)


def hard_problem(rows: int = ROWS, seed: int = 0) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Activations float32 [N, L], flags bool [N, C], and the name of each latent."""
    rng = np.random.default_rng(seed)
    named = dict(_latents(rng, rows))
    dense = np.stack(list(named.values()), 1).astype(np.float32)
    return dense, np.stack(list(_classes(rng, rows)), 1), list(named)


def _signal(rows: int) -> np.ndarray:
    """What the labels follow, [N]: a latent's spread is this signal."""
    return np.random.default_rng(99).normal(size=rows)


def _latents(rng, rows):
    signal = _signal(rows)
    half = np.arange(rows) % 2 == 0
    for offset in OFFSETS:
        yield f"always on, offset {offset:g}", offset + signal
        yield f"always on, offset {-offset:g}", signal - offset
        yield f"on in half of the rows, offset {offset:g}", (offset + signal) * half
        yield f"off in three rows, offset {offset:g}", (offset + signal) * (np.arange(rows) >= 3)
        yield f"four values, offset {offset:g}", (offset + signal) * (np.arange(rows) < 4)
    for number in range(1, 6):
        yield f"{number} values", rng.lognormal(0, 1.5, rows) * (rng.permutation(rows) < number)
        yield f"{number} values of either sign", rng.normal(0, 3, rows) * (rng.permutation(rows) < number)
    yield "always one", np.ones(rows)
    yield "always a thousand", np.full(rows, -1000.0)
    yield "one in half of the rows", half.astype(float)
    yield "either sign", signal
    yield "mostly negative", signal - 2
    yield "many scales", np.exp(2.5 * rng.normal(size=rows)) * (rng.random(rows) < 0.3)
    yield "many scales of either sign", np.exp(2.5 * rng.normal(size=rows)) * np.sign(signal)
    yield "dead", np.zeros(rows)


def _classes(rng, rows):
    half = np.arange(rows) % 2 == 0
    noisy = _signal(rows) * 1.5 + rng.logistic(size=rows) > 0
    yield noisy
    yield noisy & half
    yield noisy | ~half
    yield rng.random(rows) < 0.3
    yield rng.permutation(rows) < 3
    yield np.arange(rows) < 2
    yield np.zeros(rows, dtype=bool)
    yield np.ones(rows, dtype=bool)
