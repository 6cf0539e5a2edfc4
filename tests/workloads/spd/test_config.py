"""What an SPD training accepts: the edge of every field."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.presets import PRESETS

EDGES: list[tuple[str, Any, Any]] = [
    *((name, 1, 0) for name in ("batch_size", "seq_len", "components", "log_every", "eval_batches")),
    *((name, 0, -1) for name in ("steps", "pgd_steps", "warmup_steps", "eval_every", "save_every")),
    *((name, 1e-9, 0.0) for name in ("lr", "warmup_lr", "pgd_step_size", "pnorm", "final_p")),
    *((name, 0.0, -1e-9) for name in ("final_lr", "clip_components", "beta", "warmup_decay")),
    *((name, 1e9, math.inf) for name in ("lr", "beta")),
    *((name, 1.0, 1.001) for name in ("lr_warmup", "anneal_to")),
    ("anneal_from", 0.0, -0.001),
    ("hidden", [1], [1, 0]),
    ("hidden", [1], []),
    ("modules", ["a"], []),
    ("counts", {"a": 1}, {"a": 0}),
    ("counts", {"a": 1}, {}),
    ("microbatches", 1, 0),
    ("microbatches", 4, 3),  # of four rows
    ("seq_len", 64, 65),  # the context of the target
    ("pgd_scope", "datapoint", "other"),
    ("pgd_init", "zeros", "other"),
    ("schedule", "linear", "other"),
    ("losses", "forward", "other"),
    ("importance", "mlp", "other"),
    ("sampling", "binomial", "other"),
    ("dtype", "float64", "other"),
]
SAID = {
    **dict.fromkeys(("batch_size", "components", "eval_batches"), "a whole number from 1"),
    **dict.fromkeys(("steps", "eval_every"), "a whole number from 0"),
    "lr": "a number above 0",
    "beta": "a number from 0",
    "anneal_to": "a number from 0 to 1",
    "dtype": "one of float32, float64",
    "hidden": "a list of whole numbers from 1",
}


@pytest.mark.parametrize(("name", "last", "beyond"), EDGES)
def test_the_last_value_that_can_be_used_is_and_the_next_is_not(name: str, last: Any, beyond: Any) -> None:
    assert getattr(SpdConfig(**{name: last}), name) == last
    rule = rf"^workload\.{name}=.* cannot be used: it must be {SAID.get(name, '.*')}$"
    with pytest.raises(ConfigError, match=rule):
        SpdConfig(**{name: beyond})


OWN: dict[str, Any] = {"target": "pkg.mod:make", "tokens_path": "t.npy", "modules": ["a"], "components": 3}


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"target": "pkg.mod"}, "target"),
        ({"target_path": "/"}, "target"),
        ({"tokens_path": None}, "target"),
        ({"vectors_path": "v.npy"}, "target"),
        ({"modules": None}, "target"),
        ({"target": None, "output_part": "logits"}, "output_part"),
        ({"tokens_path": None, "vectors_path": "v.npy", "seq_len": 3}, "seq_len"),
    ],
)
def test_a_network_of_ones_own_is_named_with_its_data_and_modules(
    changed: dict[str, Any], field: str
) -> None:
    SpdConfig(**OWN)
    SpdConfig(**{**OWN, "tokens_path": None, "vectors_path": "v.npy"})
    SpdConfig(**{**OWN, "seq_len": 10_000})  # of its context nothing is known
    with pytest.raises(ConfigError, match=rf"^workload\.{field}="):
        SpdConfig(**{**OWN, **changed})


TOY_TERMS = ("minimality", "stochastic", "stochastic_layerwise")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"anneal_from": 0.6, "anneal_to": 0.5}, "anneal_from"),
        ({"schedule": "constant", "final_lr": 0.5}, "final_lr"),
        ({"counts": {"a": 1}, "components": 3}, "counts"),
        ({"counts": {"a": 1}, "modules": ["a"]}, "counts"),
        ({"resume": "c.pt", "values_path": "v"}, "values_path"),
        ({"preset": "tms_5-2", "seq_len": 1}, "seq_len"),
        ({"vectors_path": "v.npy"}, "vectors_path"),
        ({"preset": "lm_9l"}, "preset"),
        ({"beta": math.nan}, "beta"),
        ({"sigmoid": "swish_hard"}, "sigmoid"),
        ({"sigmoid": "leaky"}, "sigmoid"),
        ({"preset": "tms_5-2", "coefficients": dict.fromkeys(TOY_TERMS, 0.0)}, "coefficients"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=rf"^workload\.{named}="):
        SpdConfig(**fields)


def test_modules_keep_the_recipes_numbers_unless_one_is_given() -> None:
    assert SpdConfig(components=7).recipe.modules == (("layers.*.attn.?", 7), ("layers.*.mlp.*", 7))
    assert SpdConfig(modules=["a", "b"]).recipe.modules == (("a", 40), ("b", 40))
    assert SpdConfig(modules=["a"], components=7).recipe.modules == (("a", 7),)
    assert SpdConfig(preset="lm_4l", modules=["a"]).recipe.modules == (("a", 650),)


def test_a_term_that_a_recipe_lacks_is_searched_for_in_one_step() -> None:
    (worst,) = (
        one for one in SpdConfig(preset="tms_5-2", coefficients={"pgd": 0.5}).recipe.losses if one.adversarial
    )
    assert (worst.coeff, worst.steps, worst.step_size) == (0.5, 1, 1.0)


@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan])
def test_a_coefficient_is_a_number_from_zero(value: float) -> None:
    SpdConfig(coefficients={"pgd": 0.0})
    with pytest.raises(ConfigError, match="recon is no term; choose from faithfulness"):
        SpdConfig(coefficients={"recon": 1.0})
    with pytest.raises(ConfigError, match=rf"coefficients: pgd={value} must be a number from 0"):
        SpdConfig(coefficients={"pgd": value})


def test_a_gpt2_lies_in_a_folder_of_this_machine(tmp_path: Path) -> None:
    SpdConfig(preset="gpt2_one", target_path=str(tmp_path), seq_len=5000)
    with pytest.raises(ConfigError, match="is no folder on this machine: nothing is downloaded"):
        SpdConfig(preset="gpt2_one", target_path=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"^workload\.preset=lm_test .* one for GPT-2"):
        SpdConfig(target_path=str(tmp_path))


RENAMED = {"batch_size": "batch", "seq_len": "seq", "counts": "modules"}
OF_RECIPE: dict[str, Any] = {
    "batch_size": 8, "seq_len": 12, "steps": 7, "lr": 0.5, "schedule": "linear", "final_lr": 0.25,
    "lr_warmup": 0.1, "clip_components": 0.3, "clip_importance": 0.4, "pnorm": 1.5, "final_p": 0.9,
    "anneal_from": 0.2, "anneal_to": 0.6, "beta": 0.1, "importance": "mlp", "hidden": (5, 4),
    "counts": (("layers.0.attn.q", 3), ("layers.1.*", 4)), "warmup_steps": 9, "warmup_lr": 0.7,
    "warmup_decay": 0.2, "log_every": 3, "eval_every": 0, "save_every": 0, "eval_batches": 2,
}  # fmt: skip


@pytest.mark.parametrize("field", OF_RECIPE)
def test_every_value_of_the_recipe_can_be_set(field: str) -> None:
    name, value = RENAMED.get(field, field), OF_RECIPE[field]
    given: Any = dict(value) if field == "counts" else list(value) if isinstance(value, tuple) else value
    recipe = SpdConfig(**{field: given}).recipe
    assert getattr(recipe, name) == value != getattr(PRESETS["lm_test"], name)


def test_terms_can_be_weighed_added_and_taken_out() -> None:
    config = SpdConfig(coefficients={"faithfulness": 2.0, "pgd_subset": 0.0, "ci_masked": 0.5, "pgd": 1.0})
    assert {loss.kind: loss.coeff for loss in config.recipe.losses} == {
        "minimality": 1e-3, "stochastic_subset": 0.5, "faithfulness": 2.0, "ci_masked": 0.5, "pgd": 1.0
    }  # fmt: skip
    search = {"pgd_steps": 3, "pgd_step_size": 0.2, "pgd_init": "ones", "pgd_scope": "datapoint"}
    worst = [loss for loss in SpdConfig(**search).recipe.losses if loss.adversarial]
    (one,) = worst
    assert (one.steps, one.step_size, one.init, one.scope) == (3, 0.2, "ones", "datapoint")


def test_no_clipping_is_asked_for_by_zero() -> None:
    assert PRESETS["lm_4l"].clip_components is not None
    assert SpdConfig(preset="lm_4l", clip_components=0.0).recipe.clip_components is None
