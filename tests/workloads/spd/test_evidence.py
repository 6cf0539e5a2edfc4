"""Rows that gradients are compared by, and a factorisation that leaves nothing over."""

from __future__ import annotations

import contextlib

import pytest
import torch

from perfsweep.workloads.spd.evidence import exact_faithfulness, importance_rows


def test_each_module_has_a_row_of_unit_length_filled_up_with_zeros() -> None:
    gradients = {
        "components.a.V": torch.full((2,), 9.0),
        "importance.a.weights.0": torch.tensor([[3.0, 0.0]]),
        "importance.b.weights.0": torch.tensor([2.0]),
        "importance.a.biases.0": torch.tensor([4.0]),
        "importance.c.biases.0": torch.tensor([0.0]),
    }
    rows = importance_rows(gradients)
    assert rows.dtype == torch.float64
    assert rows.tolist() == [pytest.approx([0.6, 0.0, 0.8]), [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    "precision",
    [contextlib.nullcontext, lambda: torch.autocast("cpu", torch.bfloat16)],
    ids=["plain", "bf16"],
)
def test_single_precision_leaves_nothing_of_an_exact_factorisation(precision) -> None:
    assert exact_faithfulness(torch.device("cpu"), precision()) == 0.0
