"""How corrupted queries are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfsweep.workloads.api import Level, Toggle
from perfsweep.workloads.prover.variants.part import Part, integers
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.prover.data.corruption import Candidates, Corruptor

BLOCK = 16
"""Queries that are drawn together when corruptions are streamed."""

CORRUPTIONS = Toggle(
    "corruptions",
    (Level("per_chunk"), integers("all", "corruption_batches"), integers("stream", "corruption_batches")),
    "draw corrupted queries for each chunk, all at once, or a chunk ahead",
    "Future 5",
)


class AllAtOnce(Part):
    """Before the first slab."""

    def draws(self, corruptor: Corruptor, queries: Tensor) -> Iterator[Candidates]:
        """All candidates."""
        yield corruptor.together(queries)


class Streamed(Part):
    """Blocks of queries, ahead of what is needed."""

    def draws(self, corruptor: Corruptor, queries: Tensor) -> Iterator[Candidates]:
        """Each block once the next one is drawn."""
        ahead, *others = [queries[start : start + BLOCK] for start in range(0, len(queries), BLOCK)]
        drawn = corruptor.together(ahead)
        for block in others:
            waiting, drawn = drawn, corruptor.together(block)
            yield waiting
        yield drawn


VARIANTS = (Variant(CORRUPTIONS, {"all": AllAtOnce, "stream": Streamed}),)
