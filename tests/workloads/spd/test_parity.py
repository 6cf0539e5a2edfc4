"""Exact forms agree in total, each term and every gradient, searches included; planted mistakes do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gradients_apart import worst
from tiers import tiered

from perfsweep.workloads.api import Parity
from perfsweep.workloads.spd.variants import adversary, masking, patching

# fp64: sums in another order. fp32: 1e-5 relative, far from a mistake and above what was seen (7e-7).
BOUND = {"float64": 1e-12, "float32": 1e-5}
# Matrices of every shape; of the whole model and all steps are the forms that go together.
FEW = {
    "modules": ["layers.0.attn.k", "layers.1.attn.o", "layers.*.mlp.fc", "layers.1.mlp.down"],
    "components": 8,
    "batch_size": 2,
    "seq_len": 8,
    "pgd_steps": 2,
}
# Means over few numbers would round too much in single precision.
SEVERAL = {"modules": ["layers.*.mlp.fc", "layers.1.attn.?"], "components": 12}
EVERYTHING = {
    "patching": "wrapper",
    "delta": "folded",
    "stack_modules": "stacked",
    "prefix_reuse": "on",
    "pgd_inner": "detached",
    "pgd_layerwise": "single",
    "target_softmax": "cached",
    "mask_checks": "off",
    "unmasked_form": "fused",
    "fused_target_ops": "on",
    "free_early": "on",
}
GATHERED = {**EVERYTHING, "routed_rows": "gathered", "grad_checkpointing": "per_block"}
LATER: list[tuple[dict[str, Any], str | None]] = [
    *(({name: "on"}, None) for name in ("free_early", "fused_target_ops")),
    *(({"delta": "folded"}, None), ({"target_softmax": "cached"}, None), ({"patching": "wrapper"}, None)),
    *(({"routed_rows": "gathered"}, None), ({"stack_modules": "stacked"}, None), ({"draws": "native"}, None)),
    *(({"prefix_reuse": "on"}, "layerwise"), ({"pgd_layerwise": "single"}, "layerwise")),
    *((levels, "whole") for levels in (EVERYTHING, GATHERED)),
]
QUICK: list[tuple[dict[str, Any], str | None]] = [
    ({"patching": "persistent_hooks"}, None),
    ({"delta": "cached_w"}, None),
    ({"unmasked_form": "fused"}, "forward"),
    ({"pgd_inner": "detached"}, None),
    ({"grad_checkpointing": "per_block"}, None),
    (EVERYTHING, None),
    *((GATHERED, losses) for losses in ("layerwise", "all", "forward")),
]
"""Levels, and the losses that they act on; None: the preset's."""


@pytest.fixture(scope="module")
def references() -> dict:
    """Naive gradients by configuration, computed once."""
    return {}


@pytest.fixture
def naive(gradients_of, references):
    def compute(**config):
        key = str(sorted(config.items()))
        if key not in references:
            references[key] = gradients_of(config=config)
        return references[key]

    return compute


def configuration(losses: str | None, dtype: str = "float64") -> dict[str, Any]:
    if losses == "whole":
        return {"dtype": dtype}
    return {"dtype": dtype, **({"losses": losses} if losses else {}), **FEW}


def test_every_exact_level_of_the_mathematics_is_compared() -> None:
    exact = {
        (one.toggle.name, level.value)
        for family in (masking, patching, adversary)
        for one in family.VARIANTS
        for level in one.toggle.levels[1:]
        if level.parity is Parity.EXACT
    }
    assert exact <= {level for levels, _ in (*QUICK, *LATER) for level in levels.items()}


@pytest.mark.parametrize(
    ("levels", "losses"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.workloads) for case in LATER)],
    ids=lambda one: str(one)[:40],
)
def test_an_exact_form_has_the_naive_gradients(gradients_of, naive, levels, losses) -> None:
    config = configuration(losses)
    assert worst(gradients_of(config=config, **levels), naive(**config)) <= BOUND["float64"]


TOY = {"preset": "tms_5-2_test", "batch_size": 32}
OTHERS: dict[str, dict[str, Any]] = {
    **{f"whole {kind}": {**FEW, "importance": kind} for kind in ("mlp", "vector_mlp", "shared_mlp")},
    **{f"toy {kind}": {**TOY, "importance": kind} for kind in ("mlp", "vector_mlp", "shared_mlp")},
    **{f"no delta {of}": {**FEW, "losses": of, "delta_component": False} for of in (None, "all", "forward")},
    "leaky_hard continuous": {**FEW, "sigmoid": "leaky_hard", "sampling": "continuous"},
    "normal binomial": {**FEW, "sigmoid": "normal", "sampling": "binomial"},
    "hard binomial": {**FEW, "sigmoid": "hard", "sampling": "binomial"},
    "datapoint": {**FEW, "pgd_scope": "datapoint"},
}
SOME = ("whole shared_mlp", *(name for name in OTHERS if "toy" in name), "no delta all", "normal binomial")


@pytest.mark.parametrize(
    "config", tiered([pytest.param(one, id=name) for name, one in OTHERS.items()], (*SOME, "datapoint"))
)
def test_all_forms_together_agree_for_every_configuration(gradients_of, naive, config) -> None:
    config = {**config, "dtype": "float64"}
    assert worst(gradients_of(config=config, **GATHERED), naive(**config)) <= BOUND["float64"]


@pytest.mark.workloads
@pytest.mark.parametrize("losses", [None, "all"])
def test_in_single_precision_they_agree_to_its_rounding(gradients_of, naive, losses) -> None:
    # Signs of tiny gradients are rounding: the search is left out, as wherever kernels differ.
    config = {**(SEVERAL if losses else FEW), "dtype": "float32", "losses": losses, "pgd_steps": 0}
    assert worst(gradients_of(config=config, **EVERYTHING), naive(**config)) <= BOUND["float32"]


def add_delta_twice(x, y, site, operands, mask, unmasked):
    """Mutant: mu enters with the wrong sign in the product."""
    mu = mask.delta.unsqueeze(-1)
    return ((mask.mask + mu) * site.read(x, operands.V)) @ operands.U + mu * y


def step_down(sources, gradients, size):
    """Mutant: the search descends."""
    return {
        names: (s.detach() - size * gradients[names].sign()).clamp_(0.0, 1.0) for names, s in sources.items()
    }


@pytest.mark.parametrize(
    ("where", "mutant", "levels"),
    [
        ("maths.masked_products.folded", add_delta_twice, {"delta": "folded"}),
        ("reference.ascend", step_down, {"pgd_inner": "detached"}),
    ],
    ids=["wrong sign", "descent"],
)
def test_a_planted_mistake_is_rejected(gradients_of, naive, monkeypatch, where, mutant, levels) -> None:
    base = naive(dtype="float64", **FEW)
    monkeypatch.setattr(f"perfsweep.workloads.spd.{where}", mutant)
    assert worst(gradients_of(config={"dtype": "float64", **FEW}, **levels), base) > 1e-6


@pytest.mark.workloads
def test_iterations_of_all_exact_levels_follow_the_naive_losses(start, run) -> None:
    levels = {**EVERYTHING, "metrics": "deferred", "loader": "memmap_batched", "optimizer": "fused"}
    config = {"dtype": "float32", **FEW, "log_every": 1000, "eval_every": 0, "save_every": 0, "pgd_steps": 1}
    curves = []
    for arm in ({}, levels):
        workload = start(config=config, **arm)
        totals = []
        for _ in range(20):
            run(workload, 1)
            totals.append(workload.arm.total.item())
        curves.append(torch.tensor(totals, dtype=torch.float64))
    assert ((curves[1] - curves[0]) / curves[0]).abs().max().item() <= 1e-5
