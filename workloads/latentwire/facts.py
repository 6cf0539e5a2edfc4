"""What a checkpoint says about itself: what must agree where training goes on, and what users must know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfsweep.workloads.latentwire.config import SIZES, LatentWireConfig
from perfsweep.workloads.latentwire.data.row_layout import Layout
from perfsweep.workloads.latentwire.maths.objective import Model

OPTIONS = ("norm", "dropout", "dtype", "lora_rank", "lora_alpha", "lora_layers", "deep_prefix")


def of_training(
    config: LatentWireConfig, fingerprints: Mapping[int, str], data: Sequence[str], order: Sequence[int]
) -> dict[str, Any]:
    """Collect what must be the same where a training goes on.

    `fingerprints` are of the frozen models by number, `data` of each model's rows; `order` is what rows are
    drawn by.
    """
    return {
        **of_configuration(config),
        "frozen_models": [fingerprints[number] for number in sorted(fingerprints)],
        "data": list(data),
        "data_order": list(order),
    }


def of_configuration(config: LatentWireConfig) -> dict[str, Any]:
    """Collect what must be the same as far as the configuration alone says it."""
    return {
        "sizes": {name: getattr(config.sizes, name) for name in SIZES},
        **{name: getattr(config, name) for name in OPTIONS},
        "lora_targets": list(config.lora_targets),
    }


def of_models(
    models: Mapping[int, Model], layouts: Sequence[Layout], folders: Sequence[Path]
) -> list[dict[str, Any]]:
    """Collect what a user of soft tokens must know of each model; `folders` are empty for generated ones."""
    return [
        {
            "folder": str(folders[number]) if folders else None,
            "width": models[number].lm.config.d_model,
            "layers": models[number].lm.config.n_layers,
            "key_heads": models[number].lm.config.n_kv_heads,
            "head_width": models[number].lm.config.head_dim,
            "rms": models[number].rho.item(),
            "before": layout.before,
            "after": layout.anchor_ids,
            "end": layout.tokenizer.end,
        }
        for number, layout in enumerate(layouts)
    ]
