"""Upstream's configuration of a decomposition as the arguments of `decompose`, or as a workload's fields.

``python -m perfsweep.workloads.spd.upstream_config final_config.yaml`` prints the fields as YAML for
``workload:``. Network and data are given here, so what names them there is left out; so is what concerns only
logging. What changes a training and is not implemented is refused by its name. Fields mean what they mean at
the commit `upstream.COMMIT`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfsweep.workloads.errors import ConfigError, PerfsweepError
from perfsweep.workloads.spd.config import IMPORTANCE_KINDS, SIGMOIDS, TRANSFORMER
from perfsweep.workloads.spd.specs import SCOPES
from perfsweep.workloads.spd.upstream import COMMIT

SAME = {
    "steps": "steps",
    "batch_size": "batch_size",
    "sampling": "sampling",
    "use_delta_component": "delta_component",
    "sigmoid_type": "sigmoid",
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
    "use_delta_component": True,
    "sigmoid_type": "leaky_hard",
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
    *("task_config", "output_loss_type", "dist_backend", "gradient_accumulation_steps", "out_dir"),
    *("image_on_first_step", "image_freq", "metrics_fns", "figures_fns", "n_examples_until_dead"),
)
"""Logging, saving, what upstream drops too, and the network and data that are given here, which say how
outputs are compared: vectors by squares, logits by their divergence."""
READ = ("ci_config", "module_info", "loss_metric_configs", "lr_schedule", "autocast_bf16")
OLDER_IMPORTANCE = frozenset({"ci_fn_type", "ci_fn_hidden_dims"})
OLDER = ("lr", "lr_warmup_pct", *OLDER_IMPORTANCE)
"""What `ci_config` and `lr_schedule` hold since; where given, these count, as upstream."""
ONLY: dict[str, tuple[Any, ...]] = {
    "n_mask_samples": (1,),
    "identity_module_info": (None, []),
    "init_spd_checkpoint": (None,),
}
"""Fields of which one value is implemented."""
COMPARED_BY = {"lm": "kl", "ih": "kl", "tms": "mse", "resid_mlp": "mse"}
"""How outputs are compared, which here follows from the kind of data."""


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
        **_importance(config),
        "modules": _modules(_needed(config, "module_info")),
        "output_part": None if part is None else str(part).removeprefix("idx_"),
        "amp": "bf16" if given["autocast_bf16"] else "off",
        **_schedule(config),
        **terms(_needed(config, "loss_metric_configs")),
    }


def _needed(config: Mapping[str, Any], name: str) -> Any:
    if name not in config:
        raise ConfigError(f"{name} is missing: this is no configuration of a decomposition")
    return config[name]


def _refuse_fields(config: Mapping[str, Any]) -> None:
    one_of("", "sigmoid_type", config.get("sigmoid_type", SIGMOIDS[0]), {name: name for name in SIGMOIDS})
    refuse_unknown("", config, {*SAME, *DEFAULTS, *ELSEWHERE, *READ, *ONLY, *OLDER})
    for name, values in ONLY.items():
        if name in config and config[name] not in values:
            raise not_implemented(name, config[name], f"Only {name}={values[0]} is trained here.")
    task, compared = (config.get("task_config") or {}).get("task_name"), config.get("output_loss_type")
    if compared is not None and task in COMPARED_BY and compared != COMPARED_BY[task]:
        raise not_implemented("output_loss_type", compared, f"task_name={task} is compared by another one.")


def _modules(infos: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    for info in infos:
        refuse_unknown("module_info.", info, ("module_pattern", "C"))
    return {info["module_pattern"]: info["C"] for info in infos}


def _importance(config: Mapping[str, Any]) -> dict[str, Any]:
    """Kind and sizes of the importance functions, from `ci_config` or from the older fields."""
    if "ci_config" not in config or not OLDER_IMPORTANCE.isdisjoint(config):
        kind, hidden = config.get("ci_fn_type", "vector_mlp"), config.get("ci_fn_hidden_dims", [8])
        place = "ci_fn_type"
    else:
        own = config["ci_config"]
        if own["fn_type"] == TRANSFORMER:
            return _transformer(own["simple_transformer_ci_cfg"])
        kind, hidden, place = own["fn_type"], own.get("hidden_dims"), "ci_config.fn_type"
    if kind not in IMPORTANCE_KINDS:
        raise not_implemented(place, kind, f"Only {', '.join(IMPORTANCE_KINDS)} are trained here.")
    if hidden is None:
        raise KeyError("hidden_dims")
    return {"importance": kind, "hidden": hidden}


def _transformer(sizes: Mapping[str, Any]) -> dict[str, Any]:
    place, attention = "ci_config.simple_transformer_ci_cfg.", sizes["attn_config"]
    refuse_unknown(place, sizes, ("d_model", "n_blocks", "mlp_hidden_dim", "attn_config"))
    refuse_unknown(f"{place}attn_config.", attention, ("n_heads", "max_len", "rope_base"))
    own = {
        "width": sizes["d_model"],
        "blocks": sizes["n_blocks"],
        "heads": attention["n_heads"],
        "context": attention.get("max_len", 2048),
        "base": attention.get("rope_base", 10000.0),
    }
    return {"importance": TRANSFORMER, "hidden": sizes["mlp_hidden_dim"], "transformer": own}


def _schedule(config: Mapping[str, Any]) -> dict[str, Any]:
    schedule = _needed(config, "lr" if "lr" in config else "lr_schedule")
    if not isinstance(schedule, Mapping):  # of the older form; its cosine went down to nothing
        form = config.get("lr_schedule", "constant")
        last, warmup = 0.0 if form == "cosine" else 1.0, config.get("lr_warmup_pct", 0.0)
        return {"lr": schedule, "schedule": form, "final_lr": last, "lr_warmup": warmup}
    return of_schedule("lr_schedule.", schedule)


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
        return 2
    found["counts"] = found.pop("modules")
    print(f"# as goodfire-ai/spd at {COMMIT}")
    print(f"# toggles.amp={found.pop('amp')} measure.seed={found.pop('seed')}")
    print(OmegaConf.to_yaml(found), end="")
    return 0


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
    "PersistentPGDReconLoss": "persistent_pgd",
    "PersistentPGDReconSubsetLoss": "persistent_pgd_subset",
}
_SEARCH = ("init", "step_size", "n_steps", "mask_scope")
_PERSISTENT = ("optimizer", "scope", "use_sigmoid_parameterization", "n_warmup_steps")
_ANNEALING = ("p_anneal_start_frac", "p_anneal_final_p", "p_anneal_end_frac")
OF_TERMS: dict[str, tuple[str, ...]] = {
    "ImportanceMinimalityLoss": ("pnorm", "beta", "eps", *_ANNEALING),
    "StochasticReconSubsetLoss": ("routing",),
    "PGDReconLoss": _SEARCH,
    "PGDReconSubsetLoss": (*_SEARCH, "routing"),
    "PGDReconLayerwiseLoss": _SEARCH,
    "PersistentPGDReconLoss": _PERSISTENT,
    "PersistentPGDReconSubsetLoss": (*_PERSISTENT, "routing"),
}
"""Fields of terms that have more than a name and a coefficient."""
SCOPE_NAMES = {
    **{name: name for name in SCOPES},
    "single_mask": "single_source",
    "batch_invariant": "repeat_across_batch",
    "per_batch": "per_batch_per_position",
    "unique_per_batch_per_token": "per_batch_per_position",
}
"""Scopes of persistent sources, by their older names too."""
LONGEST = 60  # characters of a value in a message


def not_implemented(field: str, value: Any, instead: str) -> ConfigError:
    """The refusal of a field that changes a training and is not built."""
    text = str(value)
    short = text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."
    return ConfigError(f"{field}={short}: not implemented. {instead}")


def refuse_unknown(place: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a field of which it is not known what it changes."""
    for name in given:
        if name not in known:
            raise not_implemented(f"{place}{name}", given[name], f"Upstream {COMMIT[:12]} has no such field.")


def of_schedule(place: str, schedule: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a rate's schedule."""
    refuse_unknown(place, schedule, ("start_val", "fn_type", "final_val_frac", "warmup_pct"))
    return {
        "lr": schedule["start_val"],
        "schedule": schedule.get("fn_type", "constant"),
        "final_lr": schedule.get("final_val_frac", 1.0),
        "lr_warmup": schedule.get("warmup_pct", 0.0),
    }


def terms(losses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Coefficients, with 0 for the terms of the preset that are not among these."""
    coefficients: dict[str, float] = dict.fromkeys(TERMS.values(), 0.0)
    found: dict[str, Any] = {}
    for loss in losses:
        name = loss.get("classname")
        if name not in TERMS:
            raise not_implemented("loss_metric_configs.classname", name, f"Terms are {', '.join(TERMS)}.")
        place = f"loss_metric_configs.{name}."
        refuse_unknown(place, loss, ("classname", "coeff", *OF_TERMS.get(name, ())))
        if loss.get("coeff") is None:
            raise ConfigError(f"{place}coeff is missing; give a number")
        _refuse_routing(place, loss)
        if coefficients[TERMS[name]]:
            raise not_implemented(
                f"{place}coeff", loss["coeff"], "A term is trained once, and this is twice."
            )
        coefficients[TERMS[name]] = float(loss["coeff"])
        own = _of_term(place, loss) if loss["coeff"] else {}
        for field, value in own.items():
            if found.setdefault(field, value) != value:
                raise not_implemented(place + field, value, f"Another term has {field}={found[field]}.")
    return {**found, "coefficients": coefficients}


def _of_term(place: str, loss: Mapping[str, Any]) -> dict[str, Any]:
    if loss["classname"].startswith("PGD"):
        return _search(place, loss)
    if loss["classname"].startswith("Persistent"):
        return {"adversary": _adversary(place, loss)}
    return _minimality(place, loss) if loss["classname"] == "ImportanceMinimalityLoss" else {}


def _refuse_routing(place: str, loss: Mapping[str, Any]) -> None:
    routing = loss.get("routing") or {"type": "uniform_k_subset"}
    if routing["type"] != "uniform_k_subset":
        raise not_implemented(f"{place}routing", routing["type"], "Only uniform_k_subset is trained here.")


def _search(place: str, loss: Mapping[str, Any]) -> dict[str, Any]:
    starts = {"random": "random", "ones": "ones", "zeroes": "zeros"}
    scopes = {"shared_across_batch": "shared", "unique_per_datapoint": "datapoint"}
    return {
        "pgd_steps": loss["n_steps"],
        "pgd_step_size": loss["step_size"],
        "pgd_init": one_of(place, "init", loss["init"], starts),
        "pgd_scope": one_of(place, "mask_scope", loss["mask_scope"], scopes),
    }


def _adversary(place: str, loss: Mapping[str, Any]) -> dict[str, Any]:
    optimizer, scope = loss["optimizer"], loss["scope"]
    scope = {"type": scope} if isinstance(scope, str) else scope
    own = {"adam": ("beta1", "beta2", "eps", "lr"), "sign": ("step_size",)}
    fields = own[one_of(f"{place}optimizer.", "type", optimizer["type"], {name: name for name in own})]
    refuse_unknown(f"{place}optimizer.", optimizer, ("type", "lr_schedule", *fields))
    refuse_unknown(f"{place}scope.", scope, ("type", "n_sources", "n_masks"))
    rate = optimizer.get("lr_schedule") or {"start_val": optimizer[fields[-1]]}  # of the older form
    moments = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, **optimizer}
    return {
        "optimizer": optimizer["type"],
        **of_schedule(f"{place}optimizer.lr_schedule.", rate),
        **{name: moments[name] for name in ("beta1", "beta2", "eps")},
        "scope": one_of(f"{place}scope.", "type", scope["type"], SCOPE_NAMES),
        "n_sources": scope.get("n_sources", scope.get("n_masks", 1)),
        "steps": loss.get("n_warmup_steps", 0),
        "sigmoid": loss.get("use_sigmoid_parameterization", False),
    }


def one_of(place: str, field: str, value: str, ours: Mapping[str, str]) -> str:
    """The word here for one of upstream's.

    Raises
    ------
    ConfigError
        There is none.
    """
    if value not in ours:
        raise not_implemented(place + field, value, f"Only {', '.join(ours)} are trained here.")
    return ours[value]


def _minimality(place: str, loss: Mapping[str, Any]) -> dict[str, Any]:
    if loss.get("eps", 1e-12) != 1e-12:
        raise not_implemented(f"{place}eps", loss["eps"], "Only 1e-12 is trained here.")
    last = loss.get("p_anneal_final_p")
    return {
        "pnorm": loss["pnorm"],
        "beta": loss.get("beta", 0.0),
        "final_p": loss["pnorm"] if last is None else last,
        "anneal_from": loss.get("p_anneal_start_frac", 1.0),
        "anneal_to": loss.get("p_anneal_end_frac", 1.0),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
