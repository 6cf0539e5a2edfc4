"""Frozen matrices: their products, in part and whole."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.latentwire.maths.stored_weights import Weight


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


@pytest.mark.parametrize("biased", [True, False])
def test_a_product_is_that_of_the_matrix_in_part_and_whole(biased) -> None:
    matrix, x = drawn(6, 32), drawn(2, 3, 32, seed=1)
    bias = drawn(6, seed=2) if biased else None
    weight = Weight(matrix, bias)
    found = weight(x)
    assert torch.equal(found, torch.nn.functional.linear(x, matrix, bias))
    assert torch.allclose(weight.part(x, 2, 5), found[..., 2:5], atol=1e-6)
    assert torch.allclose(weight.part(x, 4, None), found[..., 4:], atol=1e-6)
