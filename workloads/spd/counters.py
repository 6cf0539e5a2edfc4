"""Machine-independent counts: code paths add where they do the work, so a path not taken counts nothing."""

from __future__ import annotations

COUNTED = (
    "iterations",
    "positions",
    "worker_batches",
    "row_fetches",
    "pinned_batches",
    "unwaited_copies",
    "prefetched_batches",
    "kept_batches",
    "hook_registrations",
    "weight_fetches",
    "masked_passes",
    "masked_modules",
    "pgd_passes",
    "softmax_rows",
    "vocabulary_bytes",
    "held_bytes",
    "graph_replays",
    "native_products",
)
"""Names of the counts that trials record, zero where nothing happened."""
