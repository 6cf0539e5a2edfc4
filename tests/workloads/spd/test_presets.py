"""Recipes as their authors publish them: target, modules with numbers of subcomponents, terms, training.

What is left out stands as a recipe has it by default.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import spelled

from workloads.spd.presets import LOSS_SETS, PRESETS, LossSpec, Recipe

EXPECTED = """
    tms_5-2_test: kind=tms features=5 hidden=2 values=analytic | linear1 20, linear2 20 | minimality
    ... 0.003, stochastic 1, stochastic_layerwise 1 | importance=mlp hidden=16 batch=512 seq=1 steps=2500
    ... lr=0.003 final_lr=0.0 pnorm=1.0 final_p=1.0 warmup_steps=200 warmup_lr=0.01 warmup_decay=0.1
    ... eval_every=500 eval_batches=1 save_every=500
    tms_5-2_demo: kind=tms features=5 hidden=2 values=analytic | linear1 20, linear2 20 | minimality
    ... 0.003, stochastic 1, stochastic_layerwise 1 | importance=mlp hidden=16 batch=1024 seq=1 steps=5000
    ... lr=0.002 final_lr=0.0 pnorm=1.0 final_p=1.0 warmup_steps=200 warmup_lr=0.01 warmup_decay=0.1
    ... eval_every=500 eval_batches=1 save_every=500
    tms_5-2: kind=tms features=5 hidden=2 values=analytic | linear1 20, linear2 20 | minimality 0.003,
    ... stochastic 1, stochastic_layerwise 1 | importance=mlp hidden=16 batch=4096 seq=1 steps=10000
    ... lr=0.001 final_lr=0.0 pnorm=1.0 final_p=1.0 warmup_steps=200 warmup_lr=0.01 warmup_decay=0.1
    ... eval_every=500 eval_batches=1 save_every=500
    tms_40-10: kind=tms features=40 hidden=10 values=trained | linear1 200, linear2 200 | minimality
    ... 0.0001, stochastic 1, stochastic_layerwise 1 | importance=mlp hidden=16 batch=4096 seq=1 steps=10000
    ... lr=0.001 final_lr=0.0 final_p=2.0 warmup_steps=200 warmup_lr=0.01 warmup_decay=0.1 eval_every=500
    ... eval_batches=1 save_every=500
    lm_test: width=32 mlp=128 vocab=259 context=64 values=trained corpus=stories | layers.*.attn.? 40,
    ... layers.*.mlp.* 40 | minimality 0.001, stochastic_subset 0.5, pgd_subset 0.5 4 of 0.5, faithfulness
    ... 1e+06 | importance=shared_mlp hidden=32 batch=4 seq=16 steps=20 lr=0.0002 warmup_steps=20
    ... log_every=10 eval_every=50 eval_batches=1 save_every=50
    lm_demo: llama | layers.*.attn.q 650, layers.*.attn.k 650, layers.*.attn.v 650, layers.*.attn.o 650,
    ... layers.*.mlp.fc 650, layers.*.mlp.down 650 | minimality 0.001, stochastic_subset 0.5, pgd_subset 0.5
    ... 1 of 1, faithfulness 1e+06 | importance=shared_mlp hidden=550 batch=4 seq=32 steps=60 lr=0.0002
    ... log_every=20 eval_every=60 save_every=60
    lm_2l: llama | layers.*.attn.q 650, layers.*.attn.k 650, layers.*.attn.v 650, layers.*.attn.o 650,
    ... layers.*.mlp.fc 650, layers.*.mlp.down 650 | minimality 0.001, stochastic_subset 0.5, pgd_subset 0.5
    ... 1 of 1, faithfulness 1e+06 | importance=shared_mlp hidden=550 batch=64 seq=512 steps=200000
    ... lr=0.0002 warmup_steps=200
    lm_one: layers=4 vocab=50257 | layers.1.attn.q 250 | minimality 0.0003, stochastic_layerwise 2 |
    ... importance=vector_mlp hidden=12 batch=1 seq=64 steps=60 lr=0.0002 log_every=20 eval_every=20
    ... eval_batches=1 save_every=20
    lm_4l: layers=4 | layers.*.mlp.fc 650, layers.*.mlp.down 580, layers.*.attn.q 250, layers.*.attn.k
    ... 200, layers.*.attn.v 350, layers.*.attn.o 300 | minimality 0.004, stochastic_subset 0.5, pgd_subset
    ... 0.5 4 of 0.5, faithfulness 100000 | importance=shared_mlp hidden=800 batch=128 seq=512 steps=400000
    ... lr=0.0005 clip_components=0.01 final_p=0.5 warmup_steps=200
    gpt2_one: kind=gpt2 layers=12 width=768 heads=12 kv_heads=12 mlp=3072 vocab=50257 context=1024 |
    ... h.1.attn.c_attn 768 | minimality 0.0003, stochastic_layerwise 2 | importance=vector_mlp hidden=12
    ... batch=2 seq=1024 steps=50000 lr=0.0003 lr_warmup=0.01 warmup_steps=200 warmup_lr=0.01
    gpt2_all: kind=gpt2 layers=12 width=768 heads=12 kv_heads=12 mlp=3072 vocab=50257 context=1024 |
    ... h.*.attn.c_attn 3000, h.*.mlp.c_fc 3000, h.*.mlp.c_proj 3000 | minimality 0.0003, stochastic_subset
    ... 0.5, pgd_subset 0.5 6 of 0.5, faithfulness 1e+06 | importance=shared_mlp hidden=2000 batch=8
    ... seq=1024 steps=200000 lr=0.0005 clip_components=0.01 warmup_steps=200
    pile_4l: layers=4 width=768 heads=12 kv_heads=12 mlp=3072 vocab=50277 | layers.*.mlp.fc 4096,
    ... layers.*.mlp.down 3072, layers.*.attn.q 512, layers.*.attn.k 256, layers.*.attn.v 1024,
    ... layers.*.attn.o 1024 | minimality 0.0005, stochastic_subset 0.5, pgd_subset 0.5 1 of 1, faithfulness
    ... 1e+06 | importance=shared_mlp hidden=1024 batch=64 seq=512 steps=200000 lr=0.0001
    ... clip_components=0.01 final_p=0.4 beta=0.1 warmup_steps=200
"""

SETS = {
    "layerwise": [
        "minimality 0.001",
        "stochastic_layerwise 0.5",
        "pgd_layerwise 0.5 1 of 1",
        "faithfulness 1e+06",
    ],
    "all": ["minimality 0.001", "stochastic 0.5", "pgd 0.5 1 of 1", "faithfulness 1e+06"],
    "forward": ["minimality 0.001", "unmasked 0.5", "ci_masked 0.5", "hidden_acts 0.5", "faithfulness 1e+06"],
}


def differing(value: Any, *without: str) -> str:
    fields = [field for field in dataclasses.fields(value) if field.name not in without]
    given = {field.name: getattr(value, field.name) for field in fields}
    return spelled.spelled({one.name: given[one.name] for one in fields if given[one.name] != one.default})


def term(loss: LossSpec) -> str:
    search = f" {loss.steps} of {loss.step_size:g}" if loss.adversarial else ""
    return f"{loss.kind} {loss.coeff:g}{search}"


def line(name: str, recipe: Recipe) -> str:
    modules = ", ".join(f"{pattern} {count}" for pattern, count in recipe.modules)
    target = differing(recipe.target).replace("baseline", "llama")
    training = differing(recipe, "target", "modules", "losses")
    return f"{name}: {target} | {modules} | {', '.join(map(term, recipe.losses))} | {training}"


@pytest.mark.usefixtures("real_presets")
def test_recipes_are_those_that_are_published() -> None:
    assert [line(name, recipe) for name, recipe in PRESETS.items()] == spelled.entries(EXPECTED, {})


def test_other_sets_of_terms() -> None:
    assert {name: [term(loss) for loss in losses] for name, losses in LOSS_SETS.items()} == SETS
