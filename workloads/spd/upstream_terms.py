"""Terms, schedules and adversaries of upstream's configuration; what is not built is refused by its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.specs import SCOPES
from perfsweep.workloads.spd.upstream import COMMIT

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
