"""Recipes hold what a person could have asked for, field by field."""

from __future__ import annotations

import dataclasses

import pytest
from declared import lines

from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.presets import LOSS_SETS, PRESETS, LossSpec, Recipe


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_configuration_that_is_not_refused(name: str) -> None:
    recipe = PRESETS[name]
    assert SpdConfig(preset=name, hidden=list(recipe.hidden)).recipe == recipe
    # Iterations that are evaluated or saved have a row of the log.
    assert recipe.eval_every % recipe.log_every == recipe.save_every % recipe.log_every == 0


def terms(losses: tuple[LossSpec, ...]) -> str:
    """Terms with their coefficients; of a search, its steps and their length too."""
    assert {(one.init, one.scope, one.adversary) for one in losses} == {("random", "shared", None)}
    words = (f"{one.kind} {one.coeff:g} {one.steps}x{one.step_size:g}" for one in losses)
    return ", ".join(word.removesuffix(" 0x0") for word in words)


def words(recipe: Recipe) -> dict[str, str]:
    """Every value of a recipe, those of its target among them."""
    values = {field.name: getattr(recipe, field.name) for field in dataclasses.fields(recipe)}
    values["modules"] = " ".join(f"{pattern} {count}" for pattern, count in recipe.modules)
    target = {f"target.{name}": value for name, value in dataclasses.asdict(values.pop("target")).items()}
    values |= {**target, "losses": terms(recipe.losses)}
    return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in values.items()}


def told(name: str, base: str) -> str:
    """A recipe by its differences from another one; that of no base by all it holds."""
    before = words(PRESETS[base]) if base else {}
    own = [f"{name}={value}" for name, value in words(PRESETS[name]).items() if value != before.get(name)]
    return f"{name}{' as ' + base if base else ''}: {'; '.join(own)}"


RECIPES = """
tms_5-2_test as lm_2l: modules=linear1 20 linear2 20; importance=mlp; hidden=(16,); losses=minimality 0.003,
  stochastic 1, stochastic_layerwise 1; batch=512; seq=1; steps=2500; lr=0.003; final_lr=0; pnorm=1;
  final_p=1; warmup_lr=0.01; warmup_decay=0.1; eval_every=500; eval_batches=1; save_every=500;
  target.kind=tms; target.features=5; target.hidden=2; target.values=analytic
tms_5-2_demo as tms_5-2_test: batch=1024; steps=5000; lr=0.002
tms_5-2 as tms_5-2_test: batch=4096; steps=10000; lr=0.001
tms_40-10 as tms_5-2: modules=linear1 200 linear2 200; losses=minimality 0.0001, stochastic 1,
  stochastic_layerwise 1; pnorm=2; final_p=2; target.features=40; target.hidden=10; target.values=trained
lm_test as lm_2l: modules=layers.*.attn.? 40 layers.*.mlp.* 40; hidden=(32,); losses=minimality 0.001,
  stochastic_subset 0.5, pgd_subset 0.5 4x0.5, faithfulness 1e+06; batch=4; seq=16; steps=20;
  warmup_steps=20; log_every=10; eval_every=50; eval_batches=1; save_every=50; target.width=32;
  target.mlp=128; target.vocab=259; target.context=64; target.values=trained; target.corpus=stories
lm_demo as lm_2l: batch=4; seq=32; steps=60; warmup_steps=0; log_every=20; eval_every=60; save_every=60
lm_2l: modules=layers.*.attn.q 650 layers.*.attn.k 650 layers.*.attn.v 650 layers.*.attn.o 650
  layers.*.mlp.fc 650 layers.*.mlp.down 650; importance=shared_mlp; hidden=(550,); losses=minimality 0.001,
  stochastic_subset 0.5, pgd_subset 0.5 1x1, faithfulness 1e+06; batch=64; seq=512; steps=200000; lr=0.0002;
  schedule=cosine; final_lr=0.1; lr_warmup=0; clip_components=None; clip_importance=None; pnorm=2;
  final_p=0.3; anneal_from=0; anneal_to=1; beta=0; warmup_steps=200; warmup_lr=0.001; warmup_decay=0;
  transformer=None; log_every=100; eval_every=1000; eval_batches=5; save_every=1000; activity=0.05;
  target.kind=llama; target.layers=2; target.width=128; target.heads=4; target.kv_heads=2; target.mlp=512;
  target.vocab=4019; target.context=512; target.features=0; target.hidden=0; target.values=random;
  target.corpus=markov; target.vectors=False; target.activation=gelu_new; target.eps=1e-05;
  target.scaled=True; target.scaled_by_layer=False; target.tied=True
lm_one as lm_2l: modules=layers.1.attn.q 250; importance=vector_mlp; hidden=(12,); losses=minimality 0.0003,
  stochastic_layerwise 2; batch=1; seq=64; steps=60; warmup_steps=0; log_every=20; eval_every=20;
  eval_batches=1; save_every=20; target.layers=4; target.vocab=50257
lm_4l as lm_2l: modules=layers.*.mlp.fc 650 layers.*.mlp.down 580 layers.*.attn.q 250 layers.*.attn.k 200
  layers.*.attn.v 350 layers.*.attn.o 300; hidden=(800,); losses=minimality 0.004, stochastic_subset 0.5,
  pgd_subset 0.5 4x0.5, faithfulness 100000; batch=128; steps=400000; lr=0.0005; clip_components=0.01;
  final_p=0.5; target.layers=4
gpt2_one as lm_2l: modules=h.1.attn.c_attn 768; importance=vector_mlp; hidden=(12,); losses=minimality
  0.0003, stochastic_layerwise 2; batch=2; seq=1024; steps=50000; lr=0.0003; lr_warmup=0.01; warmup_lr=0.01;
  target.kind=gpt2; target.layers=12; target.width=768; target.heads=12; target.kv_heads=12; target.mlp=3072;
  target.vocab=50257; target.context=1024
gpt2_all as gpt2_one: modules=h.*.attn.c_attn 3000 h.*.mlp.c_fc 3000 h.*.mlp.c_proj 3000;
  importance=shared_mlp; hidden=(2000,); losses=minimality 0.0003, stochastic_subset 0.5, pgd_subset 0.5
  6x0.5, faithfulness 1e+06; batch=8; steps=200000; lr=0.0005; lr_warmup=0; clip_components=0.01;
  warmup_lr=0.001
pile_4l as lm_2l: modules=layers.*.mlp.fc 4096 layers.*.mlp.down 3072 layers.*.attn.q 512 layers.*.attn.k 256
  layers.*.attn.v 1024 layers.*.attn.o 1024; hidden=(1024,); losses=minimality 0.0005, stochastic_subset 0.5,
  pgd_subset 0.5 1x1, faithfulness 1e+06; lr=0.0001; clip_components=0.01; final_p=0.4; beta=0.1;
  target.layers=4; target.width=768; target.heads=12; target.kv_heads=12; target.mlp=3072; target.vocab=50277
"""
LOSSES = """
layerwise: minimality 0.001, stochastic_layerwise 0.5, pgd_layerwise 0.5 1x1, faithfulness 1e+06
all: minimality 0.001, stochastic 0.5, pgd 0.5 1x1, faithfulness 1e+06
forward: minimality 0.001, unmasked 0.5, ci_masked 0.5, hidden_acts 0.5, faithfulness 1e+06
"""


@pytest.mark.usefixtures("real_presets")
def test_recipes_hold_the_values_that_they_are_known_for() -> None:
    heads = [one.partition(":")[0].partition(" as ") for one in lines(RECIPES)]
    assert [told(name, base) for name, _, base in heads] == lines(RECIPES)
    assert sorted(name for name, *_ in heads) == sorted(PRESETS)
    assert [f"{name}: {terms(losses)}" for name, losses in LOSS_SETS.items()] == lines(LOSSES)
