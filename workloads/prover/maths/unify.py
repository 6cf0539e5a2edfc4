"""Which clauses a first goal is paired with, their unification, and the raw successors that it leaves.

A pairing, of whole predicates, padded, or of what an index finds, is flat: M pairs, owners ascending. Static
pairings have the same M whatever the rows hold, as compiled code needs. There are W slots and r arguments.

A substitution is a list of at most r pairs (from, to), applied one after the other; 0 in `from` means no
pair, and matches no term because padding is never looked up.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
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


class Raw(NamedTuple):
    """Raw successors before pruning: states [M, W, 1+r] with holes, owner [M], valid [M]."""

    states: Tensor
    owner: Tensor
    valid: Tensor


Substitution = list[tuple[Tensor, Tensor]]


def substituted(terms: Tensor, sigma: Substitution) -> Tensor:
    """Terms [M, ...] with every (from, to) applied in order."""
    for source, target in sigma:
        shape = (-1,) + (1,) * (terms.dim() - 1)
        source, target = source.view(shape), target.view(shape)
        terms = torch.where((terms == source) & (source != 0), target, terms)
    return terms


def match_facts(goals: Tensor, facts: Tensor, constants: int) -> tuple[Tensor, Substitution]:
    """Which pairs of goal arguments [M, r] and fact arguments [M, r] unify, and how."""
    free = goals > constants
    matches = (free | (goals == facts)).all(1)
    for later in range(1, goals.shape[1]):
        for earlier in range(later):
            # A variable that occurs twice must end with one value.
            twice = free[:, later] & (goals[:, later] == goals[:, earlier])
            matches = matches & ~(twice & (facts[:, later] != facts[:, earlier]))
    # Facts are ground: every variable takes a constant, and no occurs check is needed.
    sources = torch.where(free, goals, 0)
    return matches, list(zip(sources.unbind(1), facts.unbind(1), strict=True))


def match_heads(goals: Tensor, heads: Tensor, constants: int) -> tuple[Tensor, Tensor, Substitution]:
    """Which pairs of goal arguments [M, r] and head arguments [M, r] unify.

    A head variable takes the goal's term. A variable that occurs twice merges two terms of the goal, which
    may bind a variable of the whole state. Also returns the merged goals, from which head variables are read.
    """
    matches = torch.ones_like(goals[:, 0], dtype=torch.bool)
    sigma: Substitution = []
    for later in range(1, goals.shape[1]):
        for earlier in range(later):
            same = (heads[:, later] == heads[:, earlier]) & (heads[:, later] != 0)
            a, b = goals[:, earlier], goals[:, later]
            # Two different constants in the place of one variable are the only clash.
            matches = matches & (~same | (a == b) | (a > constants) | (b > constants))
            forced = same & (a != b)
            # Of a variable and a constant the variable is bound; of two variables the later is renamed.
            source = torch.where(forced & (b > constants), b, torch.where(forced & (a > constants), a, 0))
            sigma.append((source, torch.where(b > constants, a, b)))
            # At once: the next pair of places must see what this one has merged.
            goals = substituted(goals, sigma[-1:])
    # An argument that only one of the two atoms has never matches.
    return matches & ((heads == 0) == (goals == 0)).all(1), goals, sigma


class Unifier:
    """Raw successors of rows from pairs, in `width` slots of the arm's integer type.

    Parameters
    ----------
    width : W; anything above what a successor can have is padding that is carried along
    """

    def __init__(self, kb: KnowledgeBase, width: int, dtype: torch.dtype) -> None:
        self.width, self.dtype = width, dtype
        self.constants = len(kb.vocabulary.constants)
        self.fresh_from = kb.vocabulary.base - 1  # ids of rule variables are above all of a canonical state
        self.facts = kb.facts.to(dtype)
        self.heads = kb.heads.to(dtype)
        self.bodies = kb.bodies.to(dtype)
        # A merge can only ask for a second look where some head repeats a variable.
        self.plain_heads = not bool(_repeats(kb.heads[:, 1:]).any())

    def with_facts(self, current: Tensor, excluded: Tensor, pairs: Pairs) -> Raw:
        """Resolvents with facts: the rest of the state, substituted."""
        facts = self.facts[pairs.number]
        goals = current[:, 0, 1:][pairs.owner]
        matches, sigma = match_facts(goals, facts[:, 1:], self.constants)
        # A query must not be proved by itself: it is a fact of training.
        itself = (facts == excluded[pairs.owner]).all(1)
        rest = self._substituted(current[:, 1:][pairs.owner], sigma)
        return Raw(self._padded(rest), pairs.owner, pairs.real & matches & ~itself)

    def with_rules(self, current: Tensor, pairs: Pairs) -> Raw:
        """Resolvents with rules: the body, head variables taken from the goal, and the state's rest."""
        heads, bodies = self.heads[pairs.number], self.bodies[pairs.number]
        goals, rest = current[:, 0, 1:][pairs.owner], current[:, 1:][pairs.owner]
        valid = pairs.real
        if not self.plain_heads:
            matches, goals, sigma = match_heads(goals, heads[:, 1:], self.constants)
            valid, rest = valid & matches, self._substituted(rest, sigma)
        states = torch.cat([self._instantiated(bodies, heads[:, 1:], goals), rest], 1)
        return Raw(self._padded(states), pairs.owner, valid)

    def _instantiated(self, bodies: Tensor, heads: Tensor, goals: Tensor) -> Tensor:
        """Bodies [M, Bmax, 1+r] with terms of the goal for head variables and fresh names for the others."""
        terms = bodies[..., 1:]
        # Names above all of a canonical state cannot capture one of its variables.
        new = torch.where(terms != 0, terms + self.fresh_from, 0)
        for place in range(heads.shape[1]):
            head, goal = heads[:, place, None, None], goals[:, place, None, None]
            new = torch.where((terms == head) & (terms != 0), goal, new)
        return torch.cat([bodies[..., :1], new.to(self.dtype)], 2)

    def _substituted(self, atoms: Tensor, sigma: Substitution) -> Tensor:
        return torch.cat([atoms[..., :1], substituted(atoms[..., 1:], sigma)], 2)

    def _padded(self, states: Tensor) -> Tensor:
        return F.pad(states, (0, 0, 0, self.width - states.shape[1]))


def _repeats(heads: Tensor) -> Tensor:
    """Heads [R, r] in which a variable occurs twice, or an argument is missing."""
    ordered = heads.sort(1).values
    return (ordered[:, 1:] == ordered[:, :-1]).any(1) | (heads == 0).any(1)
