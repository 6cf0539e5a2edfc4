"""LatentWire's toggles, with combinations that must be refused."""

from __future__ import annotations

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.latentwire.config import LatentWireConfig as Config
from perfsweep.workloads.latentwire.variants import TOGGLES

__all__ = ["FORBIDDEN", "REFUSED_BY_CONFIG", "TOGGLES", "Config"]

FORBIDDEN: tuple[tuple[dict[str, LevelValue], str], ...] = (
    ({"non_blocking": "on"}, "pin_memory"),
    ({"resident_data": "on"}, "tokenise"),
    ({"resident_data": "on", "tokenise": "pre", "loader": "dataloader"}, "resident_data"),
    ({"loader": "resident_index"}, "resident_data"),
    ({"num_workers": 4}, "loader"),
    ({"num_workers": 3}, "loader"),
    ({"model_backward": "per_model"}, "accum"),
    ({"passes": "merged"}, "k_loss"),
    ({"passes": "merged", "k_loss": "kv"}, "k_loss"),
    ({"k_loss": "batched", "passes": "merged", "last_block": "pruned"}, "logits"),
    ({"logits": "slice", "last_block": "pruned"}, "passes"),
    ({"teacher": "cache_h"}, "tokenise"),
    ({"attn": "flash"}, "lm_dtype"),
    ({"micro_batch": 100}, "effective_batch"),
    ({"micro_batch": 64, "effective_batch": 8}, "effective_batch"),
)

REFUSED_BY_CONFIG: tuple[tuple[Config, dict[str, LevelValue], str], ...] = (
    (Config(manifold=True), {"micro_batch": 8}, "manifold"),
    (Config(manifold=True), {}, "manifold"),
    (Config(state_kd=True), {"teacher": "cache_h", "tokenise": "pre"}, "state_kd"),
    (Config(models=1), {"parallel": "model_per_gpu"}, "models"),
)
