"""Where the scatter of log times comes from: the process and its layout, or the rounds within it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.statistics.estimates import LEVEL, PooledVariance


@dataclass(frozen=True)
class ServerShare:
    """Share of the variance of one log time that all rounds of a server have in common, arm by arm.

    Attributes
    ----------
    f, p : mean square between servers over that within them, and its chance where servers make no difference
    degrees : of freedom between and within servers
    """

    share: float
    f: float
    p: float
    degrees: tuple[int, int]

    def __str__(self) -> str:
        return f"process and layout: {self.share:.0%} of the variance (F {self.f:.1f}, p {self.p:.2g})"


def server_share(packs: Sequence[NDArray[np.float64]]) -> ServerShare | None:
    """Compare the variance between servers with that within, from log times [arms, servers, rounds].

    One-way analysis of variance of what is left after the effects of arms and rounds, pooled over packs; the
    share is that of the variance components. None where there are not two arms, two servers of two rounds
    each, or no variance.
    """
    tables = [table for table in packs if min(table.shape) > 1]
    if not tables:
        return None
    between, within = (sum(parts) for parts in zip(*map(_squares, tables), strict=True))
    degrees = sum((a - 1) * (s - 1) for a, s, _ in _shapes(tables))
    inner = sum((a - 1) * s * (r - 1) for a, s, r in _shapes(tables))
    if within <= 0:
        return None
    from scipy.special import fdtrc  # scipy.stats takes seconds to import on a busy host

    noise, f = within / inner, between / degrees * inner / within
    rounds = sum(r for _, _, r in _shapes(tables)) / len(tables)
    component = max(0.0, (f - 1) * noise / rounds)
    return ServerShare(component / (component + noise), f, float(fdtrc(degrees, inner, f)), (degrees, inner))


def scatters_beyond(variance: PooledVariance, pair_sd: float) -> bool:
    """Whether pairs scatter more than planned, chance excepted: the lower 95 % bound lies above `pair_sd`."""
    from scipy.special import chdtri

    highest = float(chdtri(variance.degrees, 1 - LEVEL))
    return 2 * variance.mean_square * variance.degrees / highest > pair_sd**2


def _shapes(tables: Sequence[NDArray[np.float64]]) -> list[tuple[int, int, int]]:
    return [(table.shape[0], table.shape[1], table.shape[2]) for table in tables]


def _squares(table: NDArray[np.float64]) -> tuple[float, float]:
    """Sums of squares between and within servers, arms' means and rounds' means taken out."""
    rest = table - table.mean(axis=(1, 2), keepdims=True)
    rest = rest - rest.mean(axis=0)
    means = rest.mean(axis=2, keepdims=True)
    return float(table.shape[2] * np.sum(means**2)), float(np.sum((rest - means) ** 2))
