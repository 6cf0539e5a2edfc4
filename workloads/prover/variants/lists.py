"""What a goal is paired with, and how raw successors are stored: facts, slots, rules, integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads.api import Level, Levels, Toggle
from perfsweep.workloads.prover.variants.part import Part, integers
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from perfsweep.workloads.prover.config import ProverConfig
    from perfsweep.workloads.prover.maths.episodes import Rows
    from perfsweep.workloads.prover.maths.unify import Pairs

INDEXED_FACTS = 24
"""Facts of a row that an index finds, on the generous side of what data sets show."""
STATIC_FACTS = 32
"""Facts of a row that a fixed number of pairs has room for, unless one row alone may need more."""

FACT_INDEX = Toggle(
    "fact_index",
    (Level("dense"), integers("csr", "fact_pairs")),
    "look facts up by bound arguments",
    "Future 6",
)


class IndexedFacts(Part):
    """Facts that share the goal's bound arguments; the whole predicate only where none is bound."""

    @property
    def facts_of_a_row(self) -> int:
        """What the index finds."""
        return min(INDEXED_FACTS, super().facts_of_a_row)

    def goals(self, rows: Rows) -> Tensor:
        """Finished rows must not hold the fixed room that others wait for."""
        import torch

        goals = super().goals(rows)
        return torch.where(rows.done[:, None], torch.zeros_like(goals), goals) if self.static else goals

    def fact_pairs(self, goals: Tensor) -> Pairs:
        """Pairs ascending by (predicate, arguments)."""
        import torch

        from perfsweep.workloads.prover.maths.unify import indexed, pairs_in_budget, real_pairs

        goals = goals.long()
        swapped, found = indexed(self.kb, goals)
        room = max(STATIC_FACTS * len(goals), self.kb.largest_predicate)
        pairs = pairs_in_budget(found, room) if self.static else real_pairs(found)
        facts = torch.where(swapped[pairs.owner], self.kb.swapped[pairs.number], pairs.number)
        return pairs._replace(number=facts)


PACK_WIDTH = Toggle(
    "pack_width", (Level("wide26"), integers("tight", "bytes_packed")), "slots of a raw successor", "Future 6"
)


class TightSlots(Part):
    """No slot is padding."""

    @property
    def slots(self) -> int:
        """As many as a successor can have."""
        return self.kb.raw_atoms


RULE_PAIRS = Toggle(
    "rule_pairs",
    (Level("pad100"), integers("exact", "rule_pairs"), integers("ragged", "rule_pairs")),
    "rules tried for a goal",
    "Future 6",
)


class ExactRules(Part):
    """Padded to the largest group of rules."""

    @property
    def rules_of_a_row(self) -> int:
        """Rules of the largest group."""
        return self.kb.largest_group


class RealRules(ExactRules):
    """No padding."""

    def rule_pairs(self, goals: Tensor) -> Pairs:
        """Exactly the rules of each goal's predicate."""
        from perfsweep.workloads.prover.maths.unify import real_pairs

        predicate = goals[:, 0].long()
        return real_pairs((self.kb.rule_start[predicate], self.kb.rule_count[predicate]))


def _too_many_ids(config: ProverConfig, levels: Levels) -> str | None:
    if config.largest_id < 2**15:
        return None
    return f"ids reach {config.largest_id}, and int16 ends at {2**15 - 1}: use index_dtype=int32"


INDEX_DTYPE = Toggle(
    "index_dtype",
    (
        Level("int64"),
        integers("int32", "bytes_packed"),
        integers("int16", "bytes_packed", refused=_too_many_ids),
    ),
    "integer type of packed states",
    "Future 6",
)


class NarrowIds(Part):
    """Ids in fewer bytes."""

    @property
    def dtype(self) -> torch.dtype:
        """That of the level."""
        import torch

        return getattr(torch, str(self.levels["index_dtype"]))


VARIANTS = (
    Variant(FACT_INDEX, {"csr": IndexedFacts}),
    Variant(PACK_WIDTH, {"tight": TightSlots}),
    Variant(RULE_PAIRS, {"exact": ExactRules, "ragged": RealRules}),
    Variant(INDEX_DTYPE, others=NarrowIds),
)
