"""Everything that can be switched in a LatentWire training, a file for each family of toggles.

To read a toggle, read its file; to add one, add a `Variant` to a file. Every level but the first names a
*witness*, a counter that differs from the baseline's when the level acts. Declarations import no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads import variant
from perfsweep.workloads.api import Levels, LevelValue
from perfsweep.workloads.latentwire.claims import REPORT_ALL, REPORT_QUICK_WINS
from perfsweep.workloads.latentwire.variants import (
    compilation,
    decoding,
    devices,
    encoding,
    fused_attention,
    gradients,
    loading,
    precision,
    recomputation,
    row_order,
    student_passes,
    teachers,
    updating,
)

if TYPE_CHECKING:
    from perfsweep.workloads.latentwire.reference import Reference

FAMILIES = (
    *(loading, gradients, student_passes, teachers, encoding, fused_attention, precision, updating),
    *(recomputation, row_order, compilation, devices, decoding),
)
VARIANTS = {one.toggle.name: one for family in FAMILIES for one in family.VARIANTS}
TOGGLES = tuple(one.toggle for one in VARIANTS.values())
ON_REQUEST = {loading.KEPT.toggle.name: loading.KEPT}
"""Variants that act where an arm names their toggles, and are no part of any design."""

FAST_EXACT: dict[str, LevelValue] = {
    "resident_data": "on",
    "loader": "resident_index",
    "tokenise": "cache",
    "accum": "backward_each",
    "model_backward": "per_model",
    "micro_batch": 64,
    "k_loss": "batched",
    "passes": "merged",
    "logits": "slice",
    "last_block": "pruned",
    "teacher": "cache_h",
    "encoder_trim": "batch_max",
    "encoder_attn": "native",
    "answer_trim": "batch_max",
    "calibration": "once",
    "attn": "sdpa",
    "optimizer": "fused",
    "products": "native",
    "sync": "late",
    "bucket": "window",
    "oom": "backoff",
    "decode": "batched",
}
BEST: dict[str, LevelValue] = {**FAST_EXACT, "lm_dtype": "bf16", "amp": "bf16"}

_CPU_ONLY = ("encoder_attn", "products")
# Compiled layers want one shape.
_ON_GPU = {name: level for name, level in BEST.items() if name not in ("answer_trim", *_CPU_ONLY)}

PRESETS: dict[str, dict[str, LevelValue]] = {
    "naive": {},
    "report_quickwins": REPORT_QUICK_WINS,
    "report_all": REPORT_ALL,
    "fast_exact": FAST_EXACT,
    "fast": BEST,
    "fast_gpu": {**_ON_GPU, "compile": "block", "attn": "flash"},
}
"""Levels that are measured together: what the report asks for, and the fast paths."""


def arm(levels: Levels) -> type[Reference]:
    """The naive path with what the levels of an arm replace."""
    from perfsweep.workloads.latentwire.reference import Reference

    asked = {name: one for name, one in ON_REQUEST.items() if name in levels}
    return variant.arm(Reference, levels, {**VARIANTS, **asked})
