"""Everything that can be switched in an SPD training, a file for each family of toggles.

To read a toggle, read its file; to add one, add a `Variant` to a file. Every level but the first names a
*witness*, a counter that differs from the baseline's when the level acts. Declarations import no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads import variant
from perfsweep.workloads.api import Levels, Toggle
from perfsweep.workloads.spd.variants import (
    adversary,
    compilation,
    cuda_graph,
    host_work,
    loading,
    masking,
    patching,
    precision,
    updating,
    written_gradients,
)

if TYPE_CHECKING:
    from perfsweep.workloads.spd.reference import Reference

FAMILIES = (
    *(loading, compilation, precision, patching, masking, adversary),
    *(host_work, updating, cuda_graph, written_gradients),
)
ORDER = (
    *("pin_memory", "num_workers", "compile", "non_blocking", "prefetch", "tf32", "amp", "patching"),
    *("prefix_reuse", "routed_rows", "delta", "unmasked_form", "stack_modules", "pgd_inner", "pgd_layerwise"),
    *("pgd_steps", "checkpoint", "wandb_logging", "gc", "grad_checkpointing", "free_early", "profiler"),
    *("metrics", "mask_checks", "target_softmax", "micro_batch", "draws", "products", "optimizer"),
    *("cuda_graph", "fused_target_ops", "gradients", "loader"),
)
"""Toggles as the report has them, and what it missed next to what it is about; others follow."""

_FOUND: dict[str, variant.Variant] = {one.toggle.name: one for family in FAMILIES for one in family.VARIANTS}
VARIANTS = {name: _FOUND[name] for name in (*ORDER, *_FOUND)}
TOGGLES: tuple[Toggle, ...] = tuple(one.toggle for one in VARIANTS.values())


def arm(levels: Levels) -> type[Reference]:
    """The naive path with what the levels of an arm replace."""
    from perfsweep.workloads.spd.reference import Reference

    asked = {one.toggle.name: one for one in loading.ON_REQUEST if one.toggle.name in levels}
    return variant.arm(Reference, levels, VARIANTS | asked)
