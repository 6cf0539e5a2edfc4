"""Upstream's configuration of a decomposition as the arguments of `decompose`, or as a workload's fields.

``python -m perfsweep.workloads.spd.upstream_config final_config.yaml`` prints the fields as YAML for
``workload:``. Network and data are given here, so what names them there is left out; so is what concerns only
logging. What changes a training and is not implemented is refused by its name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfsweep.workloads.errors import ConfigError, PerfsweepError
from perfsweep.workloads.spd.config import IMPORTANCE_KINDS

TERMS = {
    "FaithfulnessLoss": "faithfulness",
    "ImportanceMinimalityLoss": "minimality",
    "UnmaskedReconLoss": "unmasked",
    "CIMaskedReconLoss": "ci_masked",
    "StochasticReconLoss": "stochastic",
    "StochasticReconSubsetLoss": "stochastic_subset",
    "StochasticReconLayerwiseLoss": "stochastic_layerwise",
    "StochasticHiddenActsReconLoss": "hidden_acts",
    "PGDReconLoss": "pgd",
    "PGDReconSubsetLoss": "pgd_subset",
    "PGDReconLayerwiseLoss": "pgd_layerwise",
}
SAME = {
    "steps": "steps",
    "batch_size": "batch_size",
    "sampling": "sampling",
    "sigmoid_type": "sigmoid",
    "ci_fn_hidden_dims": "hidden",
    "grad_clip_norm_components": "clip_components",
    "grad_clip_norm_ci_fns": "clip_importance",
    "faithfulness_warmup_steps": "warmup_steps",
    "faithfulness_warmup_lr": "warmup_lr",
    "faithfulness_warmup_weight_decay": "warmup_decay",
    "train_log_freq": "log_every",
    "eval_freq": "eval_every",
    "seed": "seed",
}
"""Fields whose values mean the same under another name."""
DEFAULTS: dict[str, Any] = {
    "sampling": "continuous",
    "sigmoid_type": "leaky_hard",
    "ci_fn_hidden_dims": [8],
    "ci_fn_type": "vector_mlp",
    "grad_clip_norm_components": None,
    "grad_clip_norm_ci_fns": None,
    "faithfulness_warmup_steps": 0,
    "faithfulness_warmup_lr": 1e-3,
    "faithfulness_warmup_weight_decay": 0.0,
    "seed": 0,
    "autocast_bf16": True,
    "pretrained_model_output_attr": None,
}
"""What upstream takes where its configuration says nothing."""
ELSEWHERE = (
    *("wandb_project", "wandb_run_name", "wandb_run_name_prefix", "eval_metric_configs", "n_eval_steps"),
    *("eval_batch_size", "slow_eval_freq", "slow_eval_on_first_step", "save_freq", "ci_alive_threshold"),
    *("pretrained_model_class", "pretrained_model_path", "pretrained_model_name", "tokenizer_name"),
    *("task_config", "output_loss_type", "dist_backend"),
)
"""Logging, saving, and the network and data that are given here: vectors are compared by squares, and logits
by their divergence."""
READ = ("ci_fn_type", "module_info", "loss_metric_configs", "lr_schedule", "autocast_bf16")
ONLY: dict[str, tuple[Any, ...]] = {
    "n_mask_samples": (1,),
    "use_delta_component": (True,),
    "identity_module_info": (None, []),
}
"""Fields of which one value is implemented."""


def arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of `decompose`, ``modules`` and ``steps`` among them, for an upstream configuration.

    Raises
    ------
    ConfigError
        A field is unknown or missing, is not what it should be, or asks for what is not implemented.
    """
    try:
        return _arguments(config)
    except KeyError as error:
        raise ConfigError(f"{error.args[0]} is missing in a part of the configuration; add it") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"this is no configuration of a decomposition ({type(error).__name__}: {error}); give the"
            " final_config.yaml of a run"
        ) from error


def _arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    _refuse_fields(config)
    given = {**DEFAULTS, **config}
    found = {ours: given[theirs] for theirs, ours in SAME.items() if theirs in given}
    clips = {name: found[name] or 0.0 for name in ("clip_components", "clip_importance")}
    part = given["pretrained_model_output_attr"]
    return {
        **found,
        **clips,
        "importance": given["ci_fn_type"],
        "modules": {one["module_pattern"]: one["C"] for one in _needed(config, "module_info")},
        "output_part": None if part is None else str(part).removeprefix("idx_"),
        "amp": "bf16" if given["autocast_bf16"] else "off",
        **_schedule(config),
        **_terms(_needed(config, "loss_metric_configs")),
    }


def _needed(config: Mapping[str, Any], name: str) -> Any:
    if name not in config:
        raise ConfigError(f"{name} is missing: this is no configuration of a decomposition")
    return config[name]


def _refuse_fields(config: Mapping[str, Any]) -> None:
    old = ("lr", "lr_warmup_pct")
    known = {*SAME, *DEFAULTS, *ELSEWHERE, *READ, *ONLY, *old}
    for name, value in config.items():
        if name not in known:
            raise ConfigError(
                f"{name} is no field that is known here, and may change the training; remove it"
            )
        if name in ONLY and value not in ONLY[name]:
            raise ConfigError(f"{name}={value} is not implemented, only {ONLY[name][0]}")
    if (kind := config.get("ci_fn_type", "vector_mlp")) not in IMPORTANCE_KINDS:
        raise ConfigError(f"ci_fn_type={kind} is not implemented, only {', '.join(IMPORTANCE_KINDS)}")


def _schedule(config: Mapping[str, Any]) -> dict[str, Any]:
    schedule = _needed(config, "lr" if "lr" in config else "lr_schedule")
    if not isinstance(schedule, Mapping):  # of the older form; its cosine went down to nothing
        form = config.get("lr_schedule", "constant")
        last, warmup = 0.0 if form == "cosine" else 1.0, config.get("lr_warmup_pct", 0.0)
        return {"lr": schedule, "schedule": form, "final_lr": last, "lr_warmup": warmup}
    return {
        "lr": schedule["start_val"],
        "schedule": schedule.get("fn_type", "constant"),
        "final_lr": schedule.get("final_val_frac", 1.0),
        "lr_warmup": schedule.get("warmup_pct", 0.0),
    }


def _terms(losses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Coefficients, with 0 for the terms that the recipe behind has and these have not."""
    coefficients: dict[str, float] = dict.fromkeys(TERMS.values(), 0.0)
    found: dict[str, Any] = {}
    for loss in losses:
        name = loss.get("classname")
        if name not in TERMS:
            raise ConfigError(f"loss_metric_configs: {name} is not implemented as a loss")
        if loss.get("coeff") is None:
            raise ConfigError(f"loss_metric_configs: {name} has no coeff")
        _refuse_routing(name, loss)
        coefficients[TERMS[name]] = float(loss["coeff"])
        own = _search(loss) if name.startswith("PGD") else _minimality(loss) if "pnorm" in loss else {}
        for field, value in own.items():
            if found.setdefault(field, value) != value:
                raise ConfigError(f"loss_metric_configs: {name} has another {field} than the others")
    return {**found, "coefficients": coefficients}


def _refuse_routing(name: str, loss: Mapping[str, Any]) -> None:
    routing = loss.get("routing") or {"type": "uniform_k_subset"}
    if routing["type"] != "uniform_k_subset":
        raise ConfigError(
            f"loss_metric_configs: {name}: routing={routing['type']} is not implemented, only"
            " uniform_k_subset"
        )


def _search(loss: Mapping[str, Any]) -> dict[str, Any]:
    starts = {"random": "random", "ones": "ones", "zeroes": "zeros"}
    scopes = {"shared_across_batch": "shared", "unique_per_datapoint": "datapoint"}
    if loss["init"] not in starts or loss["mask_scope"] not in scopes:
        raise ConfigError(
            f"loss_metric_configs: init={loss['init']}, mask_scope={loss['mask_scope']} is not implemented"
        )
    return {
        "pgd_steps": loss["n_steps"],
        "pgd_step_size": loss["step_size"],
        "pgd_init": starts[loss["init"]],
        "pgd_scope": scopes[loss["mask_scope"]],
    }


def _minimality(loss: Mapping[str, Any]) -> dict[str, Any]:
    if loss.get("eps", 1e-12) != 1e-12:
        raise ConfigError(f"loss_metric_configs: eps={loss['eps']} is not implemented, only 1e-12")
    last = loss.get("p_anneal_final_p")
    return {
        "pnorm": loss["pnorm"],
        "beta": loss.get("beta", 0.0),
        "final_p": loss["pnorm"] if last is None else last,
        "anneal_from": loss.get("p_anneal_start_frac", 1.0),
        "anneal_to": loss.get("p_anneal_end_frac", 1.0),
    }


def main(words: Sequence[str]) -> int:
    """Print the workload's fields for the file that is named."""
    from omegaconf import OmegaConf
    from yaml import YAMLError

    if len(words) != 1:
        print(__doc__)
        return 2
    try:
        found = arguments(OmegaConf.to_container(OmegaConf.load(Path(words[0]))))  # type: ignore[arg-type]
    except (OSError, UnicodeDecodeError, YAMLError, PerfsweepError) as error:
        print(f"{words[0]}: {error}", file=sys.stderr)
        return 1
    found["counts"] = found.pop("modules")
    print(f"# toggles.amp={found.pop('amp')} measure.seed={found.pop('seed')}")
    print(OmegaConf.to_yaml(found), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
