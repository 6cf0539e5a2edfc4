"""A configuration of upstream's trains here what it trains there, or is refused by the field that cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd import decompose
from perfsweep.workloads.spd.specs import Adversary, TransformerSpec
from perfsweep.workloads.spd.upstream import COMMIT
from perfsweep.workloads.spd.upstream_config import arguments, main

SEARCH = {"init": "zeroes", "step_size": 0.5, "n_steps": 2, "mask_scope": "shared_across_batch"}
THEIRS: dict[str, Any] = {
    "wandb_project": None,
    "seed": 3,
    "autocast_bf16": False,
    "n_mask_samples": 1,
    "ci_fn_type": "shared_mlp",
    "ci_fn_hidden_dims": [8, 4],
    "module_info": [{"module_pattern": "body.0", "C": 5}, {"module_pattern": "out", "C": 7}],
    "use_delta_component": False,
    "loss_metric_configs": [
        {"classname": "ImportanceMinimalityLoss", "coeff": 1e-3, "pnorm": 2.0, "beta": 0.1},
        {"classname": "StochasticReconSubsetLoss", "coeff": 0.5, "routing": {"type": "uniform_k_subset"}},
        {"classname": "PGDReconLoss", "coeff": 0.5, **SEARCH},
        {"classname": "FaithfulnessLoss", "coeff": 1e6},
    ],
    "output_loss_type": "kl",
    "lr_schedule": {"start_val": 1e-3, "fn_type": "cosine", "warmup_pct": 0.1, "final_val_frac": 0.1},
    "steps": 4,
    "batch_size": 8,
    "grad_clip_norm_components": 0.01,
    "train_log_freq": 2,
    "eval_freq": 1000,
    "task_config": {"task_name": "lm"},
}


def test_it_trains_what_it_says(network, tokens) -> None:
    found = arguments(THEIRS)
    with decompose(network, tokens, **found) as trained:
        recipe = trained._workload.config.recipe
        assert len(trained.losses) == 4
    assert recipe.modules == (("body.0", 5), ("out", 7))
    assert {loss.kind: loss.coeff for loss in recipe.losses} == {
        "minimality": 1e-3,
        "stochastic_subset": 0.5,
        "pgd": 0.5,
        "faithfulness": 1e6,
    }
    (worst,) = [loss for loss in recipe.losses if loss.adversarial]
    assert (worst.steps, worst.step_size, worst.init, worst.scope) == (2, 0.5, "zeros", "shared")
    assert (recipe.importance, recipe.hidden, recipe.batch) == ("shared_mlp", (8, 4), 8)
    assert (recipe.lr, recipe.schedule, recipe.final_lr, recipe.lr_warmup) == (1e-3, "cosine", 0.1, 0.1)
    assert (recipe.clip_components, recipe.clip_importance, recipe.warmup_steps) == (0.01, None, 0)
    assert (recipe.pnorm, recipe.final_p, recipe.beta) == (2.0, 2.0, 0.1)
    assert found["delta_component"] is False
    assert found["seed"] == 3 and found["amp"] == "off"


def test_the_older_form_of_the_rate_is_read_too() -> None:
    old = {name: value for name, value in THEIRS.items() if name != "lr_schedule"}
    found = arguments({**old, "lr": 1e-3, "lr_schedule": "cosine", "lr_warmup_pct": 0.2})
    assert (found["lr"], found["schedule"], found["final_lr"], found["lr_warmup"]) == (
        1e-3,
        "cosine",
        0.0,
        0.2,
    )


def test_what_it_does_not_say_is_what_upstream_takes() -> None:
    few = ("module_info", "loss_metric_configs", "lr_schedule", "steps", "batch_size")
    found = arguments({name: THEIRS[name] for name in few})
    assert (found["importance"], found["hidden"], found["amp"]) == ("vector_mlp", [8], "bf16")


def replaced(**loss: Any) -> dict[str, Any]:
    return {"loss_metric_configs": [*THEIRS["loss_metric_configs"], loss]}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"identity_module_info": [{"module_pattern": "x", "C": 1}]},
            r"identity_module_info=\[\{.*: not impl",
        ),
        ({"ci_fn_type": "global_shared_mlp"}, r"ci_fn_type=global_shared_mlp: not implemented\. Only mlp, "),
        (
            {"brand_new": {"a": 1}},
            r"brand_new=\{'a': 1\}: not implemented\. Upstream [0-9a-f]{12} has no such",
        ),
        ({"output_loss_type": "mse"}, r"output_loss_type=mse: not implemented\. task_name=lm"),
        (
            {"module_info": [{"module_pattern": "x", "C": 1, "tied": True}]},
            r"module_info\.tied=True: not impl",
        ),
        ({"lr_schedule": {"start_val": 1.0, "restarts": 3}}, r"lr_schedule\.restarts=3: not implemented\."),
        (replaced(classname="CIMaskedReconSubsetLoss", coeff=1.0), r"classname=CIMaskedReconSubsetLoss: not"),
        (replaced(classname="UnmaskedReconLoss"), r"UnmaskedReconLoss\.coeff is missing; give a number"),
        (replaced(classname="FaithfulnessLoss", coeff=1.0), r"FaithfulnessLoss\.coeff=1\.0: not impl.*twice"),
        (
            replaced(
                classname="PGDReconSubsetLoss",
                coeff=1.0,
                routing={"type": "static_probability", "p": 0.5},
                **SEARCH,
            ),
            r"PGDReconSubsetLoss\.routing=static_probability: not implemented\. Only uniform_k_subset",
        ),
        (
            replaced(classname="PGDReconLayerwiseLoss", coeff=1.0, **{**SEARCH, "n_steps": 5}),
            r"PGDReconLayerwiseLoss\.pgd_steps=5: not implemented\. Another term has pgd_steps=2\.",
        ),
        (
            replaced(classname="PGDReconLayerwiseLoss", coeff=1.0, **{**SEARCH, "mask_scope": "repeat"}),
            r"mask_scope=repeat: not implemented\. Only shared_across_batch, unique_per_datapoint",
        ),
        (
            {"loss_metric_configs": [{**THEIRS["loss_metric_configs"][0], "eps": 1e-6}]},
            r"ImportanceMinimalityLoss\.eps=1e-06: not implemented\.",
        ),
    ],
)
def test_what_is_not_implemented_is_refused_by_its_name(changed, sentence) -> None:
    with pytest.raises(ConfigError, match=sentence) as raised:
        arguments({**THEIRS, **changed})
    assert "remove" not in str(raised.value) and "\n" not in str(raised.value)


def test_importance_functions_are_read_from_the_newer_field_too() -> None:
    newer = {name: value for name, value in THEIRS.items() if not name.startswith("ci_fn")}
    ci = {"mode": "layerwise", "fn_type": "vector_mlp", "hidden_dims": [3]}
    found = arguments({**newer, "ci_config": ci})
    assert (found["importance"], found["hidden"]) == ("vector_mlp", [3])
    sizes = {"d_model": 16, "n_blocks": 2, "mlp_hidden_dim": [8], "attn_config": {"n_heads": 4, "max_len": 9}}
    shared = {"mode": "global", "fn_type": "global_shared_transformer", "hidden_dims": None}
    found = arguments({**newer, "ci_config": {**shared, "simple_transformer_ci_cfg": sizes}})
    assert (found["importance"], found["hidden"]) == ("global_shared_transformer", [8])
    assert found["transformer"] == {"width": 16, "blocks": 2, "heads": 4, "context": 9, "base": 10000.0}
    with pytest.raises(ConfigError, match=r"^ci_config\.fn_type=global_reverse_residual: not implemented\."):
        arguments({**newer, "ci_config": {"mode": "global", "fn_type": "global_reverse_residual"}})
    with pytest.raises(ConfigError, match=r"^ci_config\.simple_transformer_ci_cfg\.gated=True: not impl"):
        arguments({**newer, "ci_config": {**shared, "simple_transformer_ci_cfg": {**sizes, "gated": True}}})
    with pytest.raises(
        ConfigError, match=r"^ci_config\.fn_type=global_shared_mlp: not implemented\. Only mlp"
    ):
        arguments({**newer, "ci_config": {**ci, "mode": "global", "fn_type": "global_shared_mlp"}})


ADAM = {"type": "adam", "beta1": 0.5, "beta2": 0.99, "eps": 1e-8}
RATE = {"start_val": 0.01, "warmup_pct": 0.5, "final_val_frac": 1.0, "fn_type": "constant"}
PERSISTENT: dict[str, Any] = {
    "classname": "PersistentPGDReconLoss",
    "coeff": 0.5,
    "optimizer": {**ADAM, "lr_schedule": RATE},
    "scope": {"type": "per_batch_per_position"},
    "use_sigmoid_parameterization": False,
    "n_warmup_steps": 2,
}


def flagship(**persistent: Any) -> dict[str, Any]:
    """The form of upstream's newest recipe, at a size for a test."""
    sizes = {"d_model": 16, "n_blocks": 2, "mlp_hidden_dim": [8], "attn_config": {"n_heads": 4, "max_len": 9}}
    ci = {
        "mode": "global",
        "fn_type": "global_shared_transformer",
        "simple_transformer_ci_cfg": sizes,
        **dict.fromkeys(("hidden_dims", "reader_hidden_dims", "d_resid_ci_fn", "block_groups")),
        **dict.fromkeys(("transition_attn_config", "transition_hidden_dim")),
    }
    terms = [THEIRS["loss_metric_configs"][0], {**PERSISTENT, **persistent}]
    newer = {name: value for name, value in THEIRS.items() if not name.startswith("ci_fn")}
    more = {"ci_config": ci, "init_spd_checkpoint": None, "autocast_bf16": True}
    return {**newer, **more, "loss_metric_configs": terms}


def test_the_newest_recipe_is_trained_with_its_transformer_and_its_adversary(network, tokens) -> None:
    with decompose(network, tokens, **arguments(flagship())) as trained:
        recipe = trained._workload.config.recipe
        assert len(set(trained.losses)) == 4
    (spec,) = [loss for loss in recipe.losses if loss.persistent]
    assert spec.adversary == Adversary(
        "adam", 0.01, "constant", 1.0, 0.5, 0.5, 0.99, 1e-8, "per_batch_per_position", steps=2
    )
    assert recipe.transformer == TransformerSpec(16, 2, 4, context=9)


def test_older_forms_of_an_adversary_are_read() -> None:
    older = {"optimizer": {**ADAM, "lr": 0.1}, "scope": {"type": "batch_invariant", "n_masks": 8}}
    found = arguments(flagship(**older, classname="PersistentPGDReconSubsetLoss"))
    own = {name: found["adversary"][name] for name in ("lr", "schedule", "final_lr", "scope", "n_sources")}
    assert own == {
        "lr": 0.1,
        "schedule": "constant",
        "final_lr": 1.0,
        "scope": "repeat_across_batch",
        "n_sources": 8,
    }
    assert found["coefficients"]["persistent_pgd_subset"] == 0.5
    sign = arguments(flagship(optimizer={"type": "sign", "step_size": 0.2}, scope="single_mask"))["adversary"]
    assert (sign["optimizer"], sign["lr"], sign["scope"]) == ("sign", 0.2, "single_source")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"optimizer": {**ADAM, "lr": 0.1, "amsgrad": True}}, r"optimizer\.amsgrad=True: not implemented\."),
        ({"optimizer": {"type": "lion", "lr": 0.1}}, r"optimizer\.type=lion: not implemented\. Only adam"),
        ({"scope": {"type": "per_token"}}, r"scope\.type=per_token: not implemented\. Only single_source"),
        ({"routing": {"type": "uniform_k_subset"}}, r"PersistentPGDReconLoss\.routing=.*: not implemented\."),
    ],
)
def test_an_adversary_that_is_not_built_is_refused_by_its_field(changed, sentence) -> None:
    with pytest.raises(ConfigError, match=sentence):
        arguments(flagship(**changed))


def test_the_command_prints_fields_of_the_workload(tmp_path, capsys) -> None:
    from omegaconf import OmegaConf

    from perfsweep.workloads.spd.config import SpdConfig

    OmegaConf.save(OmegaConf.create(THEIRS), tmp_path / "final_config.yaml")
    assert main([str(tmp_path / "final_config.yaml")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"# as goodfire-ai/spd at {COMMIT}\n")
    fields: Any = OmegaConf.to_container(OmegaConf.create(printed))
    config = SpdConfig(target="a:b", tokens_path="t.npy", **fields)
    assert config.recipe.modules == (("body.0", 5), ("out", 7))
    assert main([str(tmp_path / "absent.yaml")]) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"module_info": [{"C": 3}]}, "^module_pattern is missing in a part of the configuration; add it$"),
        ({"lr_schedule": {"fn_type": "cosine"}}, "^start_val is missing in a part"),
        (
            {"module_info": [3]},
            r"^this is no configuration of a decomposition \(TypeError: .*\); give the final",
        ),
        (
            {"loss_metric_configs": [{"classname": "FaithfulnessLoss", "coeff": "x"}]},
            r"\(ValueError: could not",
        ),
    ],
)
def test_a_part_that_is_not_what_it_should_be_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        arguments({**THEIRS, **change})


def test_a_file_that_is_no_configuration_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    for content in (b"[", b"\xff", b"3", b"a: 'b"):
        file.write_bytes(content)
        assert main([str(file)]) == 2
        assert capsys.readouterr().err.startswith(f"{file}: ")
