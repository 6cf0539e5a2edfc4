"""Which rules and facts a first goal is paired with: whole predicates, padded, or what an index finds.

A pairing is flat: M pairs, owners ascending. Static pairings have the same M whatever the rows hold, as
compiled code needs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from perfsweep.workloads.prover.data.knowledge import KnowledgeBase


class Pairs(NamedTuple):
    """Pairs of rows and clauses: owner [M], number [M] of fact or rule, real [M]; rows without room [B]."""

    owner: Tensor
    number: Tensor
    real: Tensor
    deferred: Tensor


Range = tuple[Tensor, Tensor]
"""First clause and number of clauses of each row: [B] and [B]."""


def _rest(start: Tensor) -> Tensor:
    return torch.zeros_like(start, dtype=torch.bool)


def padded_pairs(found: Range, width: int) -> Pairs:
    """Every row padded to `width` clauses."""
    start, count = found
    place = torch.arange(width, device=start.device)
    real = place < count[:, None]
    number = torch.where(real, start[:, None] + place, 0)
    owner = torch.arange(len(start), device=start.device)[:, None].expand(-1, width)
    return Pairs(owner.reshape(-1), number.reshape(-1), real.reshape(-1), _rest(start))


def real_pairs(found: Range) -> Pairs:
    """Exactly the clauses of each row; M depends on the data."""
    start, count = found
    owner = torch.repeat_interleave(torch.arange(len(start), device=start.device), count)
    place = torch.arange(owner.numel(), device=start.device) - (count.cumsum(0) - count)[owner]
    return Pairs(owner, start[owner] + place, torch.ones_like(owner, dtype=torch.bool), _rest(start))


def pairs_in_budget(found: Range, budget: int) -> Pairs:
    """Clauses of as many rows as fit into `budget` pairs; the other rows wait for the next iteration."""
    start, count = found
    ends = count.cumsum(0)
    deferred = ends > budget
    slot = torch.arange(budget, device=start.device)
    owner = torch.searchsorted(ends, slot, right=True).clamp(max=len(start) - 1)
    real = (slot < ends[-1]) & ~deferred[owner]
    number = torch.where(real, start[owner] + slot - (ends - count)[owner], 0)
    return Pairs(owner, number, real, deferred)


def indexed(kb: KnowledgeBase, goals: Tensor) -> tuple[Tensor, Range]:
    """Facts that share a goal's bound arguments; all of the predicate where none is bound.

    Returns whether the swapped order of facts is meant [B], and the range in the order that is.
    """
    base, constants = kb.vocabulary.base, len(kb.vocabulary.constants)
    predicate, first = goals[:, 0], goals[:, 1]
    second = goals[:, 2] if goals.shape[1] > 2 else first
    bound_first, bound_second = first <= constants, second <= constants
    both = bound_first & bound_second if goals.shape[1] == 3 else torch.zeros_like(bound_first)
    swapped = bound_second & ~bound_first
    # Keys of one prefix are consecutive: the range ends at the next prefix followed by zeros.
    span = base ** (goals.shape[1] - 2)
    prefix = predicate * base + torch.where(swapped, second, first)
    low = torch.where(both, prefix * span + second, prefix * span)
    free = ~bound_first & ~bound_second
    high = torch.where(free, (predicate + 1) * base * span, low + torch.where(both, 1, span))
    low = torch.where(free, predicate * base * span, low)
    bounds = torch.stack([low, high])
    plain = torch.searchsorted(kb.fact_keys, bounds)
    other = torch.searchsorted(kb.swapped_keys, bounds)
    start, end = torch.where(swapped, other, plain)
    return swapped, (start, end - start)
