"""Figures of a decomposition on held-out rows, where importances are such that they are known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from perfsweep.workloads.spd import evaluation
from perfsweep.workloads.spd.maths.masked_products import Call
from perfsweep.workloads.spd.workload import Spd

MODULES = ("layers.0.attn.q", "layers.1.mlp.fc")
SMALL: dict[str, Any] = {
    "modules": list(MODULES),
    "components": 6,
    "batch_size": 2,
    "seq_len": 8,
    "eval_batches": 2,
    "warmup_steps": 0,
}
TOY = {"preset": "tms_5-2_test", "batch_size": 8, "eval_batches": 2, "warmup_steps": 0}
MASKINGS = {"ci", "ones", "stochastic", "random", "rounded", "zero"}


@pytest.fixture
def figures(
    start: Callable[..., Spd], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[dict[str, float], Spd]]:
    """Of a decomposition, each of whose importances is `g` before the sigmoid: ``figures(0.6)``."""
    monkeypatch.setattr(evaluation, "WORST_CASE", replace(evaluation.WORST_CASE, steps=3))

    def evaluated(g: float, config: dict[str, Any] = SMALL, **levels: Any) -> tuple[dict[str, float], Spd]:
        workload = start(config=config, **levels)
        tensors = workload.arm.decomposition.named_tensors()
        last = max(name.rpartition(".")[2] for name in tensors if ".biases." in name)
        with torch.no_grad():
            for name, tensor in tensors.items():
                if name.endswith(f".{last}"):
                    tensor.fill_(g if ".biases." in name else 0.0)
        return dict(workload.arm.evaluate(7)), workload

    return evaluated


def without_weights(workload: Spd) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    """Held-out batches, and the target's outputs of them as it is and with its decomposed weights at zero."""
    batches = workload.arm.held_out_batches()
    arm = workload.arm
    plain = [arm.run(batch, Call()) for batch in batches]
    kept = {site.name: arm.target.get_submodule(site.name).weight for site in arm.sites}
    for weight in kept.values():
        weight.zero_()  # type: ignore[operator]
    return batches, plain, [arm.run(batch, Call()) for batch in batches]


def next_token(logits: torch.Tensor, batch: torch.Tensor) -> float:
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten()).item()


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_where_all_components_are_needed_masks_of_importances_are_ones(figures) -> None:
    found, _ = figures(1.5)
    assert found["step"] == 7.0
    for name in MODULES:
        assert found[f"eval/l0/{name}"] == 6
        bins = [found[f"eval/ci_histogram/{name}_{number}"] for number in range(20)]
        assert bins == [0.0] * 19 + [1.0]
    for figure in ("eval/divergence", "eval/ce", "eval/ce_unrecovered"):
        assert found[f"{figure}/ci"] == found[f"{figure}/ones"] == found[f"{figure}/rounded"]
        assert found[f"{figure}/random"] != found[f"{figure}/ones"]
    assert {name.rpartition("/")[2] for name in found if name.startswith("eval/divergence/")} == MASKINGS


def test_where_none_is_needed_the_decomposed_weights_are_missing(figures) -> None:
    found, workload = figures(-1.5)
    for name in MODULES:
        assert found[f"eval/l0/{name}"] == 0 and found[f"eval/ci_histogram/{name}_0"] == 1
    batches, plain, cut = without_weights(workload)
    assert len(batches) == 2
    target, zero = (mean([next_token(*of) for of in zip(o, batches, strict=True)]) for o in (plain, cut))
    assert found["eval/ce/target"] == pytest.approx(target, rel=1e-5)
    for masks in ("zero", "ci", "rounded"):
        assert found[f"eval/ce/{masks}"] == pytest.approx(zero, rel=1e-5)
    divergences = [
        F.kl_div(q.log_softmax(-1), p.log_softmax(-1), log_target=True, reduction="sum").item() / (2 * 8)
        for p, q in zip(plain, cut, strict=True)
    ]
    assert found["eval/divergence/zero"] == pytest.approx(mean(divergences), rel=1e-4)
    assert found["eval/ce_unrecovered/ci"] == pytest.approx(1)
    share = (found["eval/ce/ones"] - target) / (zero - target)
    assert found["eval/ce_unrecovered/ones"] == pytest.approx(share, rel=1e-3)
    assert found["eval/hidden_acts/mse"] > 0
    assert found["eval/recon/pgd"] >= found["eval/divergence/stochastic"]


@pytest.mark.parametrize(("g", "as_if", "place"), [(0.62, "ones", 12), (0.43, "zero", 8)])
def test_importances_are_rounded_at_a_half(figures, g: float, as_if: str, place: int) -> None:
    found, _ = figures(g)
    assert (
        found["eval/divergence/rounded"] == found[f"eval/divergence/{as_if}"] != found["eval/divergence/ci"]
    )
    assert found[f"eval/ci_histogram/{MODULES[0]}_{place}"] == 1
    assert found[f"eval/l0/{MODULES[0]}"] == 6


def test_figures_are_the_same_in_a_second_look_and_whatever_computes_them(figures) -> None:
    config = {**SMALL, "eval_batches": 1}
    first, workload = figures(0.3, config)
    assert dict(workload.arm.evaluate(7)) == first
    assert {name for name, value in first.items() if value} >= {f"eval/ce/{name}" for name in MASKINGS}
    other, _ = figures(0.3, config, delta="folded", patching="wrapper")
    assert other.keys() == first.keys()
    assert [other[name] for name in first] == pytest.approx(list(first.values()), rel=1e-3, abs=1e-5)


def test_a_toy_is_told_how_many_importances_are_wrong(figures, monkeypatch) -> None:
    found, workload = figures(1.5, TOY)
    asked, moment = list[torch.Tensor](), workload.arm.moment
    with monkeypatch.context() as patch:
        patch.setattr(workload.arm, "moment", lambda *given: asked.append(given[0]) or moment(*given))
        assert set(evaluation.one_feature_importances(workload.arm)) == {"linear1", "linear2"}
    assert torch.equal(asked[0], 0.75 * torch.eye(5))
    assert found["eval/toy/ci_errors"] == 5 * 20 - 5  # of those, one for each feature is right
    assert not any(name.startswith("eval/ce") for name in found)
    _, plain, cut = without_weights(workload)
    squared = [(p - q).square().sum(-1).mean().item() for p, q in zip(plain, cut, strict=True)]
    assert found["eval/divergence/zero"] == pytest.approx(mean(squared) / 5, rel=1e-5)
    assert figures(-1.5, TOY)[0]["eval/toy/ci_errors"] == 5
