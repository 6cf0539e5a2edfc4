"""A toy's gradients by formulas are the graph's; what they do not cover is refused; planted mistakes show."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gradients_apart import worst

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device, NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.maths import formulas, masked_products
from perfsweep.workloads.spd.variants import written_gradients
from perfsweep.workloads.spd.workload import Spd

HERE = Device(type="cpu", cores=2, compiler=True)
TOY: dict[str, Any] = {"preset": "tms_5-2_test", "batch_size": 32}
LEVELS = [level.value for level in written_gradients.GRADIENTS.levels[1:]]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"canonical_draws": False},
    {"components": 7},
    {"batch_size": 130, "beta": 0.3, "pnorm": 2.0},  # several blocks of the kernel, the last one not full
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("level", LEVELS)
def test_formulas_have_the_gradients_of_the_graph(gradients_of, level, setting) -> None:
    config = {**TOY, "dtype": "float64", **setting}
    # Draws that are not in canonical order fill stacks at once, and so only stacks can be compared.
    base = {"stack_modules": "stacked"} if setting == {"canonical_draws": False} else {}
    assert worst(gradients_of(config=config, gradients=level), gradients_of(config=config, **base)) <= 1e-12


@pytest.mark.parametrize("level", LEVELS)
def test_in_single_precision_they_agree_to_its_rounding(gradients_of, level) -> None:
    assert worst(gradients_of(config=TOY, gradients=level), gradients_of(config=TOY)) <= 1e-5


def saturated(start, level: str, shift: float) -> dict[str, torch.Tensor]:
    """Gradients with importances moved by `shift`: above 1 or below 0, where leaky sigmoids bend."""
    workload = start(config={**TOY, "dtype": "float64"}, gradients=level, stack_modules="stacked")
    training = workload.arm
    values = training.decomposition.named_tensors()
    with torch.no_grad():
        for name, value in values.items():
            if ".biases.1" in name:
                value += shift
    training.updates.zero()
    training.schedule()
    training.gradients(workload.arm.first_batch(), NullClock())
    return training.decomposition.named_gradients()


@pytest.mark.parametrize("shift", [-3.0, 3.0])
@pytest.mark.parametrize("level", LEVELS)
def test_they_agree_where_importances_are_saturated(start, level, shift) -> None:
    assert worst(saturated(start, level, shift), saturated(start, "autograd", shift)) <= 1e-12


def upside_down(incoming, g):
    """Mutant: the leak is on the wrong side."""
    return torch.where(g > 1, 0.01 * incoming, torch.where(g > 0, incoming, 0.0))


def first_draw_only(rows, gradients):
    """Mutant: passes but the first are forgotten."""
    return rows[0].T @ gradients[0]


@pytest.mark.parametrize(
    ("module", "name", "mutant"),
    [(masked_products, "lower_leaky_gradient", upside_down), (formulas, "_product", first_draw_only)],
)
def test_a_planted_mistake_is_rejected(gradients_of, monkeypatch, module, name, mutant) -> None:
    config = {**TOY, "dtype": "float64"}
    base = gradients_of(config=config)
    monkeypatch.setattr(module, name, mutant)
    assert worst(gradients_of(config=config, gradients="formulas"), base) > 1e-6


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"preset": "lm_test"}, r"formulas are those of a toy \(workload\.preset\)"),
        ({**TOY, "modules": ["linear1"]}, "two modules"),
        ({**TOY, "losses": "all"}, r"workload\.losses asks for others"),
        ({**TOY, "importance": "shared_mlp"}, r"workload\.importance=mlp"),
        ({**TOY, "sigmoid": "hard"}, r"workload\.sigmoid=leaky_hard"),
        ({**TOY, "sampling": "binomial"}, r"workload\.sampling=continuous, not of binomial"),
        ({**TOY, "microbatches": 2}, r"not in workload\.microbatches=2"),
    ],
)
def test_what_the_formulas_are_not_of_is_refused(config, sentence) -> None:
    space = Space(Spd.toggles, SpdConfig(**config), HERE)
    with pytest.raises(ConfigError, match=sentence):
        space.legal(
            {
                "gradients": "formulas",
                "delta": "folded",
                "stack_modules": "stacked",
                "mask_checks": "off",
                "patching": "wrapper",
            }
        )
