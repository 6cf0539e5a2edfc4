"""Recipes hold what a person could have asked for, field by field."""

from __future__ import annotations

import pytest

from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.presets import PRESETS, TargetSpec

FIELDS = ("steps", "lr", "schedule", "final_lr", "lr_warmup", "pnorm", "final_p", "anneal_from", "anneal_to")
PERIODS = (
    "log_every",
    "eval_every",
    "save_every",
    "eval_batches",
    "warmup_steps",
    "warmup_lr",
    "warmup_decay",
)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_configuration_that_is_not_refused(name: str) -> None:
    recipe = PRESETS[name]
    own = {field: getattr(recipe, field) for field in (*FIELDS, *PERIODS)}
    own |= {"batch_size": recipe.batch, "hidden": list(recipe.hidden), "importance": recipe.importance}
    assert SpdConfig(preset=name, **own).recipe == recipe
    assert recipe.anneal_from <= recipe.anneal_to and recipe.final_p <= recipe.pnorm
    # Iterations that are evaluated or saved have a row of the log.
    assert recipe.eval_every % recipe.log_every == recipe.save_every % recipe.log_every == 0


@pytest.mark.parametrize(
    "spec", [TargetSpec(), *(recipe.target for recipe in PRESETS.values())], ids=lambda spec: spec.kind
)
def test_heads_of_a_target_share_keys_evenly_and_fill_its_width(spec: TargetSpec) -> None:
    assert spec.heads % spec.kv_heads == 0 and spec.width % spec.heads == 0
    assert spec.width // spec.heads % 2 == 0, "rotary positions turn pairs"
