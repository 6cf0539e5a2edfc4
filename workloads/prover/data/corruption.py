"""Filtered corruptions, drawn by keys: they depend on seed, mode and query, not on chunk, order, worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.data.hashing import mix, mix_int
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase

SIGN = -(2**63)
VECTOR_CELLS = 4_000_000
"""Pairs of query and entity that one vectorised draw holds at once."""
HEAD, TAIL = 0, 1


def parts_of(mode: str, count: int | None) -> list[tuple[int, int | None]]:
    """Argument places a mode corrupts and how many of each; None: all there are."""
    if mode == "both":
        return [
            (HEAD, None if count is None else (count + 1) // 2),
            (TAIL, None if count is None else count // 2),
        ]
    return [(HEAD if mode == "head" else TAIL, count)]


def no_corruption(mode: str) -> ConfigError:
    """The error that says that a mode has nothing to rank."""
    return ConfigError(
        f"workload.modes={mode}: no query has a valid corruption; every replacement is known to be"
        " true or of another domain, so give other queries or drop the domain file"
    )


@dataclass(frozen=True)
class Candidates:
    """Queries with their corruptions, ragged: query i owns atoms[start[i]:start[i+1]], the original first.

    Attributes
    ----------
    atoms : [N, 1+r]
    sizes : [Q] candidates by query
    """

    atoms: Tensor
    sizes: Tensor

    def __len__(self) -> int:
        return self.atoms.shape[0]


class Corruptor:
    """Draws corruptions of one mode for any queries.

    `batches` counts draws: one per query in the loop, one per block where they are vectorised.
    """

    def __init__(self, kb: KnowledgeBase, mode: str, count: int | None, seed: int) -> None:
        self.kb, self.count, self.parts = kb, count, parts_of(mode, count)
        self.starts = {place: mix_int(mix_int(seed) ^ place) for place, _ in self.parts}
        self.batches = 0

    def one_by_one(self, queries: Tensor) -> Candidates:
        """A Python loop over queries [Q, 1+r], as upstream drew them."""
        return self._joined([self._draw(query[None]) for query in queries])

    def together(self, queries: Tensor) -> Candidates:
        """Vectorised over queries, in blocks that bound the memory."""
        rows = max(1, VECTOR_CELLS // max(1, len(self.kb.vocabulary.constants)))
        return self._joined([self._draw(block) for block in queries.split(rows)])

    @staticmethod
    def _joined(parts: list[Candidates]) -> Candidates:
        return Candidates(
            torch.cat([part.atoms for part in parts]), torch.cat([part.sizes for part in parts])
        )

    def _draw(self, queries: Tensor) -> Candidates:
        self.batches += 1
        drawn = [self._entities(queries, place, count) for place, count in self.parts]
        atoms, real = [queries[:, None]], [torch.ones_like(queries[:, :1], dtype=torch.bool)]
        for (place, _), (entities, valid) in zip(self.parts, drawn, strict=True):
            changed = queries[:, None].expand(-1, entities.shape[1], -1).clone()
            changed[..., 1 + place] = entities
            atoms.append(changed)
            real.append(valid)
        mask = torch.cat(real, 1)
        return Candidates(torch.cat(atoms, 1)[mask], mask.sum(1))

    def _entities(self, queries: Tensor, place: int, count: int | None) -> tuple[Tensor, Tensor]:
        """Entities [Q, k] of smallest key, ascending, and which of them there really are."""
        allowed = self._eligible(queries, place)
        ids = torch.arange(1, allowed.shape[1] + 1, device=queries.device)
        if count is None:
            return ids.expand(queries.shape[0], -1), allowed
        keys = mix(mix((self.starts[place] ^ mix(self.kb.key(queries)))[:, None]) ^ ids) ^ SIGN
        keys = torch.where(allowed, keys, 2**63 - 1)  # unsigned order by flipping the sign; refused ones last
        order = keys.sort(dim=1, stable=True).indices[:, :count]
        return ids[order], allowed.gather(1, order)

    def _eligible(self, queries: Tensor, place: int) -> Tensor:
        """[Q, C]: same domain, another entity, and nothing that is known to be true."""
        kb, own = self.kb, queries[:, 1 + place]
        constants = len(kb.vocabulary.constants)
        ids = torch.arange(1, constants + 1, device=queries.device)
        changed = queries[:, None].expand(-1, constants, -1).clone()
        changed[..., 1 + place] = ids
        keys = kb.key(changed)
        found = torch.searchsorted(kb.known, keys).clamp(max=kb.known.numel() - 1)
        eligible = (
            (kb.known[found] != keys) & (ids != own[:, None]) & (kb.domain[ids] == kb.domain[own][:, None])
        )
        return eligible & (own[:, None] != 0)


class Source:
    """Candidates in order, whatever the size of the bites: query by query, each candidate with its number.

    Parameters
    ----------
    blocks : candidates of some queries after the other, drawn as they are needed
    none : queries [0, 1+r]
    """

    def __init__(self, blocks: Iterator[Candidates], none: Tensor) -> None:
        self.blocks, self.none = blocks, none
        self.drawn = 0
        self.sizes: list[Tensor] = []
        self._pending: list[Tensor] = []

    def take(self, count: int | None) -> tuple[Tensor, Tensor]:
        """The next `count` candidates (None: all that are left) as atoms [n, 1+r] and their numbers [n]."""
        waiting = sum(map(len, self._pending))
        while count is None or waiting < count:
            if (block := next(self.blocks, None)) is None:
                break
            self.sizes.append(block.sizes)
            self._pending.append(block.atoms)
            waiting += len(block)
        ready = torch.cat(self._pending) if self._pending else self.none
        taken, left = (ready, ready[:0]) if count is None else (ready[:count], ready[count:])
        self._pending = [left] if len(left) else []
        first, self.drawn = self.drawn, self.drawn + len(taken)
        return taken, torch.arange(first, self.drawn, device=taken.device)

    @property
    def owners(self) -> Tensor:
        """Candidates by query [Q] of the queries drawn so far."""
        return torch.cat(self.sizes) if self.sizes else torch.zeros(0, dtype=torch.int64)
