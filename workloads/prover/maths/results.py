"""What became of every candidate, and the figures that queries are judged by."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.prover.maths.episodes import Rows

FAILED = 100.0
EPS = 1e-3
HITS = (1, 3, 10)


class Results:
    """Outcomes by candidate number, in buffers that grow; actions only where they are compared."""

    def __init__(self, device: torch.device, traces: bool) -> None:
        self.device, self.traces = device, traces
        self.finished = 0
        self._parts: list[tuple[Tensor, ...]] = []

    def store(self, rows: Rows) -> None:
        """Take the finished rows that belong to a candidate."""
        real = rows.number >= 0
        if not bool(real.all()):
            rows = rows.take(real.nonzero()[:, 0])
        self.finished += rows.batch
        fields = (rows.number, rows.success, rows.depth, rows.log_prob, rows.ambiguous)
        self._parts.append((*fields, rows.actions) if self.traces else fields)

    def arrays(self) -> dict[str, np.ndarray]:
        """Outcomes by name, ordered by candidate number [N]; `actions` [N, max_depth] if traces are kept."""
        names = ("number", "success", "depth", "log_prob", "ambiguous", "actions")
        columns = [torch.cat(parts).cpu().numpy() for parts in zip(*self._parts, strict=True)]
        found = dict(zip(names, columns, strict=False))
        order = np.argsort(found.pop("number"), kind="stable")
        return {name: values[order] for name, values in found.items()}


@dataclass(frozen=True)
class Ranked:
    """Expected ranks [Q] of one mode, and whether a candidate of the query was ambiguous [Q]."""

    rank: np.ndarray
    ambiguous: np.ndarray


def scores(outcome: dict[str, np.ndarray]) -> np.ndarray:
    """Log-probability, 100 less without a proof; in float64 [N]."""
    return outcome["log_prob"].astype(np.float64) - np.where(outcome["success"], 0.0, FAILED)


def ranked(outcome: dict[str, np.ndarray], sizes: np.ndarray) -> Ranked:
    """Expected rank of the first candidate of each query: ties within EPS share a place."""
    score = scores(outcome)
    start = np.cumsum(sizes) - sizes
    owner = np.repeat(np.arange(len(sizes)), sizes)
    gap = score - score[start][owner]
    own = np.zeros(len(score), dtype=bool)
    own[start] = True
    better = np.bincount(owner, (gap > EPS) & ~own, len(sizes))
    equal = np.bincount(owner, (np.abs(gap) <= EPS) & ~own, len(sizes))
    doubt = np.bincount(owner, outcome["ambiguous"], len(sizes)) > 0
    return Ranked(1 + better + 0.5 * equal, doubt)


def metrics(rank: np.ndarray) -> dict[str, float]:
    """MRR and Hits@k of some queries; NaN where there are none."""
    if not len(rank):
        return {"mrr": float("nan"), **{f"hits{k}": float("nan") for k in HITS}}
    return {"mrr": float(np.mean(1 / rank)), **{f"hits{k}": float(np.mean(rank <= k)) for k in HITS}}


def digest(arrays: list[np.ndarray]) -> str:
    """SHA-256 over arrays."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()[:16]
