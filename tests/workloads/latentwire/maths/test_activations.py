"""Functions of a gate, by the names that models' configurations have for them."""

from __future__ import annotations

import math

import pytest
import torch

from perfsweep.workloads.latentwire.maths.activations import ACTIVATIONS, SYNONYMS

X = [-3.0, -1.0, 0.0, 0.5, 2.0]


def tanh_gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FORMULAS = {
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_new": tanh_gelu,
    "gelu_pytorch_tanh": tanh_gelu,
    "relu": lambda x: max(x, 0.0),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_name_means_its_formula(name: str) -> None:
    found = ACTIVATIONS[name](torch.tensor(X, dtype=torch.float64)).tolist()
    assert found == pytest.approx([FORMULAS[name](x) for x in X], abs=1e-12)
    assert ACTIVATIONS.keys() == FORMULAS.keys() and set(SYNONYMS.values()) <= FORMULAS.keys()
