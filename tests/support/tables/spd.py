"""Toggles and claims of SPD as its workload declares them, with what the reports mean by them."""

from __future__ import annotations

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.spd.claims import CLAIMS, QUICK_START
from perfsweep.workloads.spd.config import SpdConfig as Config
from perfsweep.workloads.spd.variants import TOGGLES

__all__ = [
    "BEST",
    "CHAIN",
    "CLAIMS",
    "FAST",
    "FORBIDDEN",
    "PRESETS",
    "REFERENCES",
    "REFUSED_BY_CONFIG",
    "TOGGLES",
    "Config",
]

REFERENCES: dict[str, dict[str, LevelValue]] = {
    "naive": {},
    "naive_tf32": {"tf32": "on"},
    "naive_bf16_compiled": {"amp": "bf16", "patching": "wrapper", "compile": "full"},
}

FAST: dict[str, LevelValue] = {
    "patching": "wrapper",
    "delta": "folded",
    "stack_modules": "stacked",
    "pgd_inner": "detached",
    "target_softmax": "cached",
    "routed_rows": "gathered",
}
"""What a gathered training has of any network, also of a user's own."""

EXACT: dict[str, LevelValue] = {
    "patching": "wrapper",
    "prefix_reuse": "on",
    "delta": "folded",
    "stack_modules": "stacked",
    "pgd_inner": "detached",
    "pgd_layerwise": "single",
    "checkpoint": "async",
    "wandb_logging": "buffered",
    "gc": "rarely",
    "free_early": "on",
    "metrics": "deferred",
    "mask_checks": "off",
    "target_softmax": "cached",
    "optimizer": "fused",
    "fused_target_ops": "on",
    "loader": "memmap_batched",
}

BEST: dict[str, LevelValue] = {**EXACT, "compile": "full"}

PRESETS: dict[str, dict[str, LevelValue]] = {
    "exact": EXACT,
    "gpu": {**BEST, "amp": "bf16", "cuda_graph": "on", "loader": "gpu_resident"},
}

CHAIN: tuple[tuple[str, LevelValue], ...] = (
    ("patching", "wrapper"),
    ("delta", "folded"),
    ("target_softmax", "cached"),
    ("pgd_inner", "detached"),
    ("prefix_reuse", "on"),
    ("compile", "full"),
    ("optimizer", "fused"),
)

FORBIDDEN: tuple[tuple[dict[str, LevelValue], str], ...] = (
    *(({"compile": scope}, "patching") for scope in ("target", "breaks", "masked_pass", "full")),
    *(({"compile": scope, "patching": "persistent_hooks"}, "patching") for scope in ("masked_pass", "full")),
    *(
        ({name: value}, "patching")
        for name, value in (("grad_checkpointing", "per_block"), ("prefix_reuse", "on"))
    ),
    *(({name: value}, "patching") for name, value in (("stack_modules", "stacked"), ("delta", "folded"))),
    ({"non_blocking": "on"}, "pin_memory"),
    ({"amp": "fp16"}, "pgd_inner"),
    ({"cuda_graph": "on", "mask_checks": "off"}, "metrics"),
    ({"cuda_graph": "on", "metrics": "deferred"}, "mask_checks"),
    ({"loader": "gpu_resident", "pin_memory": "on"}, "pin_memory"),
    ({"loader": "gpu_resident", "num_workers": 3}, "num_workers"),
    ({"loader": "gpu_resident", "pin_memory": "on", "non_blocking": "on"}, "non_blocking"),
    ({"loader": "gpu_resident", "prefetch": "stream"}, "prefetch"),
    (QUICK_START, "patching"),
)

REFUSED_BY_CONFIG: tuple[tuple[Config, dict[str, LevelValue], str], ...] = (
    (Config(iterable=True), {"num_workers": 4}, "sharded"),
    (Config(iterable=True), {"num_workers": 3}, "sharded"),
    (Config(microbatches=2), {}, "pgd_scope"),
    (Config(drop_last=False), {"cuda_graph": "on", "metrics": "deferred", "mask_checks": "off"}, "drop_last"),
)
