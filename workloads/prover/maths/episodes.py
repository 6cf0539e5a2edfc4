"""The rows of a slab: one episode each. B rows, T = max_depth + 1 history entries."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.prover.data.hashing import hash_states
from perfsweep.workloads.prover.data.knowledge import ATOMS, MAX_DEPTH


class Rows(NamedTuple):
    """State of B episodes.

    current [B, A, 1+r], excluded [B, 1+r] the original query, history [B, T] hashes with `stored` [B] valid
    entries, depth [B], done [B], success [B], log_prob [B], ambiguous [B], actions [B, max_depth] with -1
    where none was taken, number [B] of the candidate (-1: padding), value [B, .] of the current state where
    it is kept for reuse.
    """

    current: Tensor
    excluded: Tensor
    history: Tensor
    stored: Tensor
    depth: Tensor
    done: Tensor
    success: Tensor
    log_prob: Tensor
    ambiguous: Tensor
    actions: Tensor
    number: Tensor
    value: Tensor

    @property
    def batch(self) -> int:
        """B."""
        return self.current.shape[0]

    def take(self, index: Tensor) -> Rows:
        """Some rows, in the order of `index`."""
        return Rows(*(tensor[index] for tensor in self))

    def put(self, index: Tensor, rows: Rows) -> Rows:
        """A copy with `rows` at the places `index`."""
        return Rows(*(old.index_copy(0, index, new) for old, new in zip(self, rows, strict=True)))

    @staticmethod
    def joined(parts: list[Rows]) -> Rows:
        """Rows of several groups end to end."""
        return (
            parts[0]
            if len(parts) == 1
            else Rows(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))
        )


def fresh_rows(
    atoms: Tensor, numbers: Tensor, dtype: torch.dtype, base: int, value: Callable[[Tensor], Tensor]
) -> Rows:
    """Episodes of depth 0 for candidates [B, 1+r], in the integer type of the arm.

    Parameters
    ----------
    base : above all ids of the vocabulary
    value : values [B, .] of states that are kept for reuse; [B, 0] where none are
    """
    count, device = len(atoms), atoms.device
    current = torch.zeros(count, ATOMS, atoms.shape[1], dtype=dtype, device=device)
    current[:, 0] = atoms.to(dtype)
    history = torch.zeros(count, MAX_DEPTH + 1, dtype=torch.int64, device=device)
    history[:, 0] = hash_states(current, base)
    off, zero = (torch.zeros(count, dtype=kind, device=device) for kind in (torch.bool, torch.int64))
    return Rows(
        current=current,
        excluded=atoms.to(dtype),
        history=history,
        stored=zero + 1,
        depth=zero,
        done=off,
        success=off.clone(),
        log_prob=torch.zeros(count, device=device),
        ambiguous=off.clone(),
        actions=torch.full((count, MAX_DEPTH), -1, dtype=torch.int16, device=device),
        number=numbers,
        value=value(current),
    )


class Move(NamedTuple):
    """What one step chose for each row: [B] each, `state` [B, A, 1+r], `state_hash` [B].

    `outcome`: 0 goes on, 1 TRUE, 2 FALSE, 3 END. `acted` False: the row could not be worked on in this
    iteration. `value` [B, .] of the chosen state; None where none are kept.
    """

    action: Tensor
    outcome: Tensor
    state: Tensor
    state_hash: Tensor
    log_prob: Tensor
    ambiguous: Tensor
    acted: Tensor
    value: Tensor | None


def advance(rows: Rows, move: Move) -> Rows:
    """Apply a move to the rows that are not done; the others keep everything."""
    live = ~rows.done & move.acted
    goes_on = live & (move.outcome == 0)
    depth = rows.depth + live
    at = rows.depth.clamp(max=MAX_DEPTH - 1)[:, None]
    taken = torch.where(live, move.action, rows.actions.gather(1, at)[:, 0]).to(torch.int16)
    entry = rows.stored.clamp(max=MAX_DEPTH)[:, None]
    stored = torch.where(goes_on, move.state_hash, rows.history.gather(1, entry)[:, 0])
    return rows._replace(
        current=torch.where(goes_on[:, None, None], move.state, rows.current),
        history=rows.history.scatter(1, entry, stored[:, None]),
        stored=rows.stored + goes_on,
        depth=depth,
        done=rows.done | (live & ((move.outcome != 0) | (depth >= MAX_DEPTH))),
        success=rows.success | (live & (move.outcome == 1)),
        log_prob=torch.where(live, rows.log_prob + move.log_prob, rows.log_prob),
        ambiguous=rows.ambiguous | (live & move.ambiguous),
        actions=rows.actions.scatter(1, at, taken[:, None]),
        value=rows.value if move.value is None else torch.where(goes_on[:, None], move.value, rows.value),
    )


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
