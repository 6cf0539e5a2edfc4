"""Everything that can be switched in the prover, a file for each family of toggles.

To read a toggle, read its file; to add one, add a `Variant` to a file. Every level but the first names a
*witness*, a counter that differs from the baseline's when the level acts. Declarations import no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads import variant
from perfsweep.workloads.api import Levels
from perfsweep.workloads.prover.variants import (
    candidates,
    compaction,
    compilation,
    finished_rows,
    hand_written,
    lists,
    policy_rows,
    products,
    screening,
    slabs,
)

if TYPE_CHECKING:
    from perfsweep.workloads.prover.reference import Reference

FAMILIES = (
    *(slabs, finished_rows, compilation, candidates, lists, policy_rows),
    *(products, compaction, screening, hand_written),
)
VARIANTS = {one.toggle.name: one for family in FAMILIES for one in family.VARIANTS}
TOGGLES = tuple(one.toggle for one in VARIANTS.values())

FAST: Levels = {
    "refill": "queue",
    "corruptions": "stream",
    "fact_index": "csr",
    "pack_width": "tight",
    "rule_pairs": "ragged",
    "index_dtype": "int32",
    "policy_rows": "ragged",
    "obs_reuse": "on",
    "const_states": "on",
    "forced_skip": "on",
    "fold": "on",
    "compaction": "scan",
}
"""The exact paths that save most, in float32."""


def arm(levels: Levels) -> type[Reference]:
    """The naive path with what the levels of an arm replace."""
    from perfsweep.workloads.prover.reference import Reference

    return variant.arm(Reference, levels, VARIANTS)
