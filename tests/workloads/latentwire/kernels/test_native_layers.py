"""Kernels of a frozen model's layers: formulas in double precision, and what they leave to others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from perfsweep.workloads.errors import UnsupportedHere
from perfsweep.workloads.latentwire.kernels import native_layers
from perfsweep.workloads.latentwire.maths import joined_layers

BOUNDS = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 1e-2}
EPS = 1e-5


@pytest.fixture(autouse=True, scope="module")
def _built() -> None:
    try:
        native_layers.library()
    except UnsupportedHere as reason:
        pytest.skip(str(reason))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def norm_formula(x: Tensor, weight: Tensor) -> Tensor:
    return weight * x / (x.square().mean(-1, keepdim=True) + EPS).sqrt()


def gate_formula(joined: Tensor) -> Tensor:
    gate, up = joined.chunk(2, dim=-1)
    return gate / (1 + torch.exp(-gate)) * up


def turn_formula(x: Tensor, turned: int, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs of entries as complex numbers times those of their positions."""
    a, b = x.chunk(2, dim=-1)
    half = x.shape[-1] // 2
    position = torch.complex(cos[..., :half], sin[..., :half]).unsqueeze(-2)
    product = torch.complex(a, b) * position
    return torch.cat(
        (torch.cat((product.real, product.imag), dim=-1)[..., :turned, :], x[..., turned:, :]), dim=-2
    )


def worst(kernel: Callable[..., Tensor], formula: Callable[..., Tensor], x: Tensor, *others: Tensor) -> float:
    """Difference of values and gradients, relative to the largest of each."""
    results = []
    for function, kind in ((kernel, x.dtype), (formula, torch.float64)):
        given = x.detach().to(kind).requires_grad_()
        out = function(given, *(other.to(kind) for other in others))
        grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        out.backward(grad.to(x.dtype).to(kind))
        assert given.grad is not None
        assert out.dtype == kind
        results.append((out.detach().double(), given.grad.double()))
    return max(
        float((ours - exact).abs().max() / exact.abs().max()) for ours, exact in zip(*results, strict=True)
    )


def angles(*shape: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [.., e] whose halves are alike."""
    half = torch.rand(*shape[:-1], shape[-1] // 2) * 6
    return torch.cat((half, half), dim=-1).cos(), torch.cat((half, half), dim=-1).sin()


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("shape", [(1, 3), (3, 7), (2, 5, 16), (2, 3, 100)], ids=str)
class TestAgainstFormulas:
    def test_norms(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        x, weight = torch.randn(shape).to(dtype), torch.randn(shape[-1]).to(dtype)
        assert worst(lambda x, w: native_layers.rms_norm(x, w, EPS), norm_formula, x, weight) <= BOUNDS[dtype]

    def test_gates(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        joined = (4 * torch.randn(*shape[:-1], 2 * shape[-1])).to(dtype)
        assert worst(native_layers.gated, gate_formula, joined) <= BOUNDS[dtype]


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("turned", [0, 2, 3])
@pytest.mark.parametrize("positions", [(5,), (2, 5)], ids=["alike", "own"])
def test_heads_are_turned_and_turned_back(
    positions: tuple[int, ...], turned: int, dtype: torch.dtype
) -> None:
    x = torch.randn(2, 5, 3, 8).to(dtype)
    cos, sin = (part.to(dtype) for part in angles(*positions, 8))

    def kernel(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return native_layers.rotated(x, turned, cos, sin)

    def formula(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return turn_formula(x, turned, cos, sin)

    assert worst(kernel, formula, x, cos, sin) <= BOUNDS[dtype]


def test_a_gradient_turned_the_wrong_way_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = native_layers._turn
    monkeypatch.setattr(
        native_layers, "_turn", lambda x, turned, cos, sin, _sign: turn(x, turned, cos, sin, 1.0)
    )
    cos, sin = angles(5, 8)
    x = torch.randn(2, 5, 3, 8)
    assert (
        worst(
            lambda x, c, s: native_layers.rotated(x, 2, c, s),
            lambda x, c, s: turn_formula(x, 2, c, s),
            x,
            cos,
            sin,
        )
        > 0.1
    )


@pytest.mark.parametrize("value", [100.0, -100.0, 0.0])
def test_gates_at_the_ends_of_their_range_are_finite(value: float) -> None:
    joined = torch.full((1, 8), value, requires_grad=True)
    out = native_layers.gated(joined)
    out.sum().backward()
    assert joined.grad is not None
    assert out.isfinite().all()
    assert joined.grad.isfinite().all()
    assert torch.allclose(out, gate_formula(joined.double()).float(), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_is_not_a_number_stays_visible(dtype: torch.dtype) -> None:
    x = torch.ones(2, 8, dtype=dtype)
    x[1, 3] = torch.nan
    assert native_layers.rms_norm(x, torch.ones(8, dtype=dtype), EPS)[1].isnan().all()
    assert native_layers.gated(x)[1].isnan().any()


def test_rows_that_do_not_lie_behind_one_another_are_read_right() -> None:
    x, weight = torch.randn(6, 4, 16).transpose(0, 1), torch.randn(16)
    assert torch.allclose(native_layers.rms_norm(x, weight, EPS), norm_formula(x, weight), atol=1e-5)


def test_weights_that_want_gradients_get_them() -> None:
    weight = torch.randn(16, requires_grad=True)
    native_layers.rms_norm(torch.randn(3, 16), weight, EPS).sum().backward()
    assert weight.grad is not None
    assert weight.grad.abs().sum() > 0


def test_a_norm_of_another_type_than_its_weight_goes_the_other_way() -> None:
    x, weight = torch.randn(3, 16), torch.randn(16).bfloat16()
    assert torch.equal(native_layers.rms_norm(x, weight, EPS), joined_layers.rms_norm(x, weight, EPS))
