"""From raw successors to lists: prune, prove, pack, rename, remove doubles and what was visited.

A list is a *grid* [B, S-1, A, 1+r] with a mask, or *ragged*: all successors end to end with their owners.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from perfsweep.workloads.prover.data.knowledge import ATOMS, SUCCESSORS, FactSet, KnowledgeBase
from perfsweep.workloads.prover.maths.episodes import Rows
from perfsweep.workloads.prover.maths.unify import Raw

CAP = SUCCESSORS - 1


class Lists(NamedTuple):
    """Successors of B rows, END, TRUE and FALSE left out.

    states : [B, CAP, A, 1+r] or [n, A, 1+r]; hashes : [B, CAP] or [n]; mask : [B, CAP], or [n] all true
    owner : [n], or empty for grids; sizes : [B] successors of each row
    proof : [B] whether the only action is TRUE; overflow : [B] whether the cap cut something
    """

    states: Tensor
    hashes: Tensor
    mask: Tensor
    owner: Tensor
    sizes: Tensor
    proof: Tensor
    overflow: Tensor


class Pruned(NamedTuple):
    """Raw successors with what pruning found: kept atoms [M, W], proofs [M], survivors [M]."""

    keep: Tensor
    proof: Tensor
    alive: Tensor


class Pruner:
    """Deletes ground atoms that are facts, but not the row's own query; applies proof test and atom budget.

    Only the slots a successor can fill are looked at, however wide the arm packs.
    """

    def __init__(self, kb: KnowledgeBase) -> None:
        self.kb, self.facts = kb, FactSet(kb)
        self.constants = len(kb.vocabulary.constants)

    def __call__(self, raw: Raw, excluded: Tensor) -> Pruned:
        """Test all raw successors [M, W, 1+r] against facts; `excluded` [B, 1+r]."""
        atoms = raw.states[:, : self.kb.raw_atoms]
        real = atoms[..., 0] != 0
        # Ids of constants come first: anything above is a variable.
        ground = real & (atoms[..., 1:] <= self.constants).all(2)
        known = ground & self.facts.holds(self.kb.key(atoms))
        # A query must not be its own proof: among facts its own atom stays a goal.
        own = (self.kb.key(atoms) == self.kb.key(excluded)[raw.owner][:, None]) & known
        keep = real & (~known | own)
        atoms_left = keep.sum(1)
        return Pruned(
            keep, raw.valid & (atoms_left == 0), raw.valid & (atoms_left > 0) & (atoms_left <= ATOMS)
        )


def rank_by_sort(alive: list[Tensor], owners: list[Tensor], rows: int) -> tuple[list[Tensor], Tensor]:
    """Place of each survivor among its owner's, parts in order, and survivors by row [B].

    By a stable sort over owners, the dead at the end.
    """
    flags, owner = torch.cat(alive), torch.cat(owners)
    order = torch.sort(torch.where(flags, owner, rows), stable=True).indices
    total = torch.zeros(rows, dtype=torch.int64, device=owner.device).index_add_(
        0, owner, flags.to(torch.int64)
    )
    sorted_owner = owner[order]
    place = torch.arange(order.numel(), device=order.device) - (total.cumsum(0) - total)[sorted_owner]
    rank = torch.empty_like(place).scatter_(0, order, place)
    return list(rank.split([len(part) for part in alive])), total


def left_aligned_by_sort(states: Tensor, keep: Tensor) -> Tensor:
    """Kept atoms moved to the left by a stable sort of the flags: [n, W, 1+r] to [n, A, 1+r]."""
    order = torch.sort((~keep).to(torch.uint8), dim=1, stable=True).indices[:, :ATOMS]
    packed = states.gather(1, order[..., None].expand(-1, -1, states.shape[2]))
    return packed * keep.gather(1, order)[..., None].to(states.dtype)


def canonical(states: Tensor, constants: int) -> Tensor:
    """Variables renamed to C+1, C+2, ... by first appearance: [n, A, 1+r]."""
    terms = states[..., 1:].flatten(1)
    free = terms > constants
    # argmax gives the first of equal maxima: where each term appears first.
    first = (terms[:, :, None] == terms[:, None, :]).to(torch.uint8).argmax(2)
    place = torch.arange(terms.shape[1], device=terms.device)
    number = (free & (first == place)).cumsum(1)
    named = torch.where(free, constants + number.gather(1, first), terms).to(states.dtype)
    return torch.cat([states[..., :1], named.view_as(states[..., 1:])], 2)


def _in_history(hashes: Tensor, history: Tensor, stored: Tensor) -> Tensor:
    """Whether hashes [...] are among the valid entries of history [..., T]."""
    valid = torch.arange(history.shape[-1], device=history.device) < stored[..., None]
    return ((hashes[..., None] == history) & valid).any(-1)


class Packed(NamedTuple):
    """Survivors at their places before doubles go: [n, A, 1+r], [n], [n], [n]; and of rows: [B], [B]."""

    states: Tensor
    hashes: Tensor
    owner: Tensor
    mask: Tensor
    proof: Tensor
    overflow: Tensor


def proved(rows: Rows, parts: list[Raw], pruned: list[Pruned]) -> Tensor:
    """Whether a raw successor of each row is a proof [B]."""
    proof = torch.zeros_like(rows.done)
    for raw, found in zip(parts, pruned, strict=True):
        proof = proof | torch.zeros_like(rows.depth).index_add_(0, raw.owner, found.proof.long()).bool()
    return proof


def sources(
    parts: list[Raw], pruned: list[Pruned], ranks: list[Tensor], proof: Tensor, start: Tensor, places: int
) -> Tensor:
    """For each place the number, from 1, of the raw successor that takes it; 0: empty.

    Parameters
    ----------
    start : where the list of each row begins [B]
    places : of all lists
    """
    source = torch.zeros(places + 1, dtype=torch.int64, device=start.device)
    offset = 0
    for raw, found, rank in zip(parts, pruned, ranks, strict=True):
        fits = found.alive & (rank < CAP) & ~proof[raw.owner]
        numbers = torch.arange(offset + 1, offset + 1 + len(rank), device=rank.device)
        # What has no place goes to the last one, which is cut off: no shape depends on the data.
        source.scatter_(0, torch.where(fits, start[raw.owner] + rank, places), numbers)
        offset += len(rank)
    return source[:-1]


def gathered(parts: list[Raw], pruned: list[Pruned], source: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Survivors within the cap, at their places: states, kept atoms, owners, and places taken."""
    mask, source = source > 0, (source - 1).clamp(min=0)
    states = torch.cat([raw.states for raw in parts])[source]
    keep = torch.cat([found.keep for found in pruned])[source] & mask[:, None]
    if states.shape[1] > keep.shape[1]:
        keep = torch.nn.functional.pad(keep, (0, states.shape[1] - keep.shape[1]))
    owner = torch.cat([raw.owner for raw in parts])[source]
    return states, keep, owner, mask


def grid_lists(rows: Rows, packed: Packed) -> Lists:
    """Lists of CAP places, without doubles and what was visited."""
    states, shape = packed.states, (rows.batch, CAP)
    hashes, mask = packed.hashes.view(shape), packed.mask.view(shape)
    same = (hashes[:, :, None] == hashes[:, None, :]) & mask[:, None, :]
    # The first of equals stays: only those with an equal before them go.
    repeated = same.tril(-1).any(2)
    mask = mask & ~repeated & ~_in_history(hashes, rows.history[:, None], rows.stored[:, None])
    empty = torch.zeros(0, dtype=torch.int64, device=mask.device)
    found = (states.view(*shape, *states.shape[1:]), hashes, mask, empty, mask.sum(1))
    return Lists(*found, packed.proof, packed.overflow)


def ragged_lists(rows: Rows, packed: Packed) -> Lists:
    """Lists end to end, without doubles and what was visited."""
    states, hashes, owner, _, proof, overflow = packed
    # Two stable sorts, by hash and then by owner, bring equals of a row together, the first in front.
    by_hash = torch.sort(hashes, stable=True).indices
    order = by_hash[torch.sort(owner[by_hash], stable=True).indices]
    repeated = torch.zeros_like(owner, dtype=torch.bool)
    ordered, owners = hashes[order], owner[order]
    repeated[order[1:]] = (ordered[1:] == ordered[:-1]) & (owners[1:] == owners[:-1])
    left = ~repeated & ~_in_history(hashes, rows.history[owner], rows.stored[owner])
    states, hashes, owner = states[left], hashes[left], owner[left]
    count = torch.zeros_like(rows.depth).index_add_(0, owner, torch.ones_like(owner))
    return Lists(states, hashes, torch.ones_like(owner, dtype=torch.bool), owner, count, proof, overflow)
