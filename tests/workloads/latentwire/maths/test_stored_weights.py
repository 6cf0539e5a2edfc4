"""Matrices in narrow types: what they multiply to, in part and whole, and what flows back through them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfsweep.workloads.latentwire.maths.attention import KERNELS
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath, Path
from perfsweep.workloads.latentwire.maths.stored_weights import Fp8Weight, Int8Weight, Weight, quantise
from perfsweep.workloads.latentwire.presets import LMS


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


@pytest.fixture(autouse=True)
def scaled_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product of 8 bits that CPUs have no kernel for, of the numbers as they are rounded."""

    def multiply(
        a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: Any
    ) -> torch.Tensor:
        assert a.dtype == b.dtype == torch.float8_e4m3fn and a.shape[1] == b.shape[0]
        return (a.float() @ b.float() * scale_a * scale_b).to(out_dtype)

    monkeypatch.setattr(torch, "_scaled_mm", multiply)


@pytest.mark.parametrize(("kind", "close"), [(Weight, 0.0), (Int8Weight, 2e-2), (Fp8Weight, 8e-2)])
@pytest.mark.parametrize("biased", [True, False])
def test_a_product_is_that_of_the_matrix_as_closely_as_its_type_holds_it(kind, close, biased) -> None:
    matrix, x = drawn(6, 32), drawn(2, 3, 32, seed=1)
    bias = drawn(6, seed=2) if biased else None
    exact = torch.nn.functional.linear(x, matrix, bias)
    weight = kind(matrix, bias)
    found = weight(x)
    assert found.dtype == torch.float32 and found.shape == (2, 3, 6)
    assert (found - exact).norm() <= close * exact.norm() + 1e-6
    assert torch.allclose(weight.part(x, 2, 5), found[..., 2:5], atol=1e-6)
    assert torch.allclose(weight.part(x, 4, None), found[..., 4:], atol=1e-6)


def test_a_large_output_costs_the_others_of_eight_bits_no_digits() -> None:
    matrix, x = drawn(4, 32), drawn(5, 32, seed=1)
    matrix[2] *= 1000
    matrix[3] = 0
    exact, found = x @ matrix.T, Int8Weight(matrix, None)(x)
    for output in range(3):
        assert (found - exact)[:, output].norm() <= 2e-2 * exact[:, output].norm()
    assert not found[:, 3].any()


def test_what_flows_back_is_the_derivative_of_the_stored_matrix() -> None:
    matrix, x = drawn(6, 32), drawn(2, 3, 32, seed=1).requires_grad_()
    weight, outer = Fp8Weight(matrix, None), drawn(2, 3, 6, seed=3)
    (found,) = torch.autograd.grad(weight(x), x, outer)
    assert torch.allclose(found, outer @ (weight.whole.float() * weight.scale), atol=1e-5)
    assert (found - outer @ matrix).norm() <= 5e-2 * (outer @ matrix).norm()


@pytest.mark.parametrize(("level", "kind", "close"), [("int8_wo", Int8Weight, 3e-2), ("fp8", Fp8Weight, 0.2)])
def test_matrices_of_layers_are_narrowed_and_nothing_else(level, kind, close) -> None:
    models = [CausalLM(LMS["nano-q"], torch.Generator().manual_seed(0)) for _ in range(2)]
    for model in models:
        model.path = Path(LayerPath(KERNELS["sdpa"]))
    whole, narrow = models
    quantise(narrow, level)
    assert {type(part) for layer in narrow.layers for part in layer.children()} == {kind}
    assert torch.equal(whole.table, narrow.table)
    assert torch.equal(whole.layers[0].norm1, narrow.layers[0].norm1)  # type: ignore[union-attr, arg-type]
    with torch.no_grad():
        exact, found = (model.run(model.embed(torch.arange(6)[None])) for model in models)
    assert 0 < (found - exact).norm() <= close * exact.norm()
