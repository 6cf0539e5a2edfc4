"""Levels that are measured together: what the report asks for, and the fast paths.

Declarations only, as in `toggles`.
"""

from __future__ import annotations

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.latentwire.claims import REPORT_ALL, REPORT_QUICK_WINS

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
