"""Hand-written derivatives of joined layers against those of automatic differentiation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from perfsweep.workloads.latentwire.maths import joined_layers, lm
from perfsweep.workloads.latentwire.maths.rotary import rotate


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same(found: torch.Tensor, right: torch.Tensor, *leaves: torch.Tensor) -> None:
    assert torch.allclose(found, right)
    outer = drawn(*found.shape, seed=9)
    for one, other in zip(
        torch.autograd.grad(found, leaves, outer), torch.autograd.grad(right, leaves, outer), strict=True
    ):
        assert torch.allclose(one, other)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_norm_and_its_derivative(frozen: bool) -> None:
    x, weight = drawn(2, 3, 5).requires_grad_(), drawn(5, seed=1).requires_grad_(not frozen)
    leaves = (x,) if frozen else (x, weight)
    assert_same(joined_layers.rms_norm(x, weight, 0.1), lm.rms_norm(x, weight, 0.1), *leaves)


def test_a_gate_and_its_derivative() -> None:
    joined = drawn(2, 3, 8).requires_grad_()
    gate, up = joined.chunk(2, dim=-1)
    assert_same(joined_layers.gated(joined), F.silu(gate) * up, joined)


@pytest.mark.parametrize("turned", [0, 2, 3])
@pytest.mark.parametrize("by_row", [False, True])
def test_the_first_heads_are_turned_and_turned_back(turned: int, by_row: bool) -> None:
    x = drawn(2, 4, 3, 6).requires_grad_()
    half = drawn(*((2, 4, 3) if by_row else (4, 3)), seed=1)
    angles = torch.cat((half, half), dim=-1)
    cos, sin = angles.cos(), angles.sin()
    heads = x.transpose(1, 2)
    wide = (cos.unsqueeze(1), sin.unsqueeze(1)) if by_row else (cos, sin)
    right = torch.cat((rotate(heads[:, :turned], *wide), heads[:, turned:]), dim=1).transpose(1, 2)
    assert_same(joined_layers.rotated(x, turned, cos, sin), right, x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_normed_in_single_precision(dtype: torch.dtype) -> None:
    x = (100 * drawn(2, 64)).to(dtype).requires_grad_()
    weight = torch.ones(64, dtype=dtype)
    found = joined_layers.rms_norm(x, weight, 1e-6)
    right = lm.rms_norm(x.detach().float(), weight.float(), 1e-6)
    assert found.dtype == dtype
    assert torch.allclose(found.float(), right, rtol=1e-2)
    found.sum().backward()
    assert x.grad is not None and x.grad.dtype == dtype


@pytest.mark.parametrize("biased", [True, False])
def test_projections_that_read_the_same_are_joined(biased: bool) -> None:
    from perfsweep.workloads.latentwire.presets import LMConfig

    config = LMConfig(11, 8, 1, 2, 1, 4, 12, qkv_bias=biased)
    (layer,) = lm.CausalLM(config, torch.Generator().manual_seed(0), torch.float64).layers
    parts = [layer.q, layer.k, layer.v, layer.gate, layer.up]
    x = drawn(2, 3, 8)
    apart = [part(x) for part in parts]
    joined_layers.join(layer)
    assert not hasattr(layer, "q") and not hasattr(layer, "up")
    assert torch.allclose(layer.qkv(x), torch.cat(apart[:3], dim=-1))
    assert torch.allclose(layer.gate_up(x), torch.cat(apart[3:], dim=-1))
    assert (layer.qkv.bias is not None) == biased
