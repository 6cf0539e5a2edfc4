"""SPD's toggles, with combinations that must be refused, and the levels of a gathered training."""

from __future__ import annotations

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.spd.claims import QUICK_START
from perfsweep.workloads.spd.config import SpdConfig as Config
from perfsweep.workloads.spd.variants import TOGGLES

__all__ = ["FAST", "FORBIDDEN", "REFUSED_BY_CONFIG", "TOGGLES", "Config"]

FAST: dict[str, LevelValue] = {
    "patching": "wrapper",
    "delta": "folded",
    "stack_modules": "stacked",
    "pgd_inner": "detached",
    "target_softmax": "cached",
    "routed_rows": "gathered",
}
"""What a gathered training has of any network, also of a user's own."""


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
    (
        Config(),
        {
            "cuda_graph": "on",
            "metrics": "deferred",
            "mask_checks": "off",
            "amp": "fp16",
            "pgd_inner": "detached",
        },
        "the host reads whether scaled gradients",
    ),
    (Config(drop_last=False), {"cuda_graph": "on", "metrics": "deferred", "mask_checks": "off"}, "drop_last"),
)
