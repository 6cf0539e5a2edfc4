"""Which rules and facts a first goal is paired with: whole predicates, padded, or what an index finds.

A pairing is flat: M pairs, owners ascending. Static pairings have the same M whatever the rows hold, as
compiled code needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from perfsweep.workloads.prover.data.knowledge import PREDICATE_RULES, KnowledgeBase

NARROW_PAIRS = 32
"""Pairs of facts per row that a static budget of the index holds, unless one row alone may need more."""


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


def grid(found: Range, width: int) -> Pairs:
    """Every row padded to `width` clauses."""
    start, count = found
    place = torch.arange(width, device=start.device)
    real = place < count[:, None]
    number = torch.where(real, start[:, None] + place, 0)
    owner = torch.arange(len(start), device=start.device)[:, None].expand(-1, width)
    return Pairs(owner.reshape(-1), number.reshape(-1), real.reshape(-1), _rest(start))


def ragged(found: Range) -> Pairs:
    """Exactly the clauses of each row; M depends on the data."""
    start, count = found
    owner = torch.repeat_interleave(torch.arange(len(start), device=start.device), count)
    place = torch.arange(owner.numel(), device=start.device) - (count.cumsum(0) - count)[owner]
    return Pairs(owner, start[owner] + place, torch.ones_like(owner, dtype=torch.bool), _rest(start))


def budgeted(found: Range, budget: int) -> Pairs:
    """Clauses of as many rows as fit into `budget` pairs; the other rows wait for the next iteration."""
    start, count = found
    ends = count.cumsum(0)
    deferred = ends > budget
    slot = torch.arange(budget, device=start.device)
    owner = torch.searchsorted(ends, slot, right=True).clamp(max=len(start) - 1)
    real = (slot < ends[-1]) & ~deferred[owner]
    number = torch.where(real, start[owner] + slot - (ends - count)[owner], 0)
    return Pairs(owner, number, real, deferred)


@dataclass(frozen=True)
class Dense:
    """All facts of the goal's predicate, padded to the largest predicate."""

    kb: KnowledgeBase

    def __call__(self, goals: Tensor) -> Pairs:
        """Pairs of goals [B, 1+r] with facts."""
        predicate = goals[:, 0].long()
        return grid((self.kb.fact_start[predicate], self.kb.fact_count[predicate]), self.kb.largest_predicate)


@dataclass(frozen=True)
class Indexed:
    """Facts that share the goal's first bound argument; the whole predicate only where no argument is bound.

    Parameters
    ----------
    static : whether M must not depend on the data
    """

    kb: KnowledgeBase
    static: bool = False

    def __call__(self, goals: Tensor) -> Pairs:
        """Pairs of goals [B, 1+r] with facts, ascending by (predicate, arguments)."""
        goals = goals.long()
        swapped, found = self._ranges(goals)
        pairs = (
            budgeted(found, max(NARROW_PAIRS * len(goals), self.kb.largest_predicate))
            if self.static
            else ragged(found)
        )
        facts = torch.where(swapped[pairs.owner], self.kb.swapped[pairs.number], pairs.number)
        return pairs._replace(number=facts)

    def _ranges(self, goals: Tensor) -> tuple[Tensor, Range]:
        """Whether the swapped order is meant, and the range of facts in the chosen order."""
        kb, base = self.kb, self.kb.vocabulary.base
        constants = len(kb.vocabulary.constants)
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


def rule_ranges(kb: KnowledgeBase, goals: Tensor) -> Range:
    """The group of rules of each goal's predicate."""
    predicate = goals[:, 0].long()
    return kb.rule_start[predicate], kb.rule_count[predicate]


def rule_pairing(kb: KnowledgeBase, level: str) -> Callable[[Tensor], Pairs]:
    """The pairing of a level of the toggle `rule_pairs`."""
    if level == "ragged":
        return lambda goals: ragged(rule_ranges(kb, goals))
    width = max(PREDICATE_RULES, kb.largest_group) if level == "pad100" else kb.largest_group
    return lambda goals: grid(rule_ranges(kb, goals), width)


def fact_pairing(kb: KnowledgeBase, level: str, static: bool) -> Callable[[Tensor], Pairs]:
    """The pairing of a level of the toggle `fact_index`."""
    return Indexed(kb, static) if level == "csr" else Dense(kb)
