"""The trunk by matrix tiles: layer by layer what the network is, whatever the number of states."""

from __future__ import annotations

import pytest
import torch

from workloads.native import compiler_here
from workloads.prover.kernels import tiles
from workloads.prover.maths.policy import PolicyShape

SHAPES = [
    PolicyShape(width, width, layers) for width, layers in ((32, 2), (64, 1), (128, 0), (256, 8), (512, 1))
]
BLOCK = 64

pytestmark = pytest.mark.skipif(compiler_here() is None, reason="no C++ compiler")
tiled_only = pytest.mark.skipif(
    compiler_here() is None or not tiles.library().tiles_usable(), reason="this processor has no tiles"
)


def weights_of(shape):
    """Weights of a trunk, every bias, scale and shift its own."""
    names = [*(f"trunk.{layer}" for layer in range(1, shape.layers + 1)), "hidden"]
    weights = {f"{name}.weight": torch.randn(shape.width, shape.width) / shape.width**0.5 for name in names}
    weights |= {
        f"{name}.{part}": torch.randn(shape.width) for name in names for part in ("bias", "scale", "shift")
    }
    return weights


def reference(weights, shape, x):
    """Each layer by itself in float64, from inputs and weights rounded as the kernel rounds them."""

    def product(x, name):
        rounded = weights[f"{name}.weight"].bfloat16().double()
        return torch.relu(x.float().bfloat16().double() @ rounded.T + weights[f"{name}.bias"].double())

    x = x.double()
    for layer in range(1, shape.layers + 1):
        r = product(x, f"trunk.{layer}")
        normal = (r - r.mean(1, keepdim=True)) / (r.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        x = x + normal * weights[f"trunk.{layer}.scale"].double() + weights[f"trunk.{layer}.shift"].double()
    return product(x, "hidden")


def difference(weights, shape, rows, trunk=None):
    """Of kernel and reference, relative to the largest value; 16 bits of which 8 are digits round by 2^-9."""
    x = torch.randn(rows, shape.width)
    expected = reference(weights, shape, x)
    found = (trunk or tiles.TiledTrunk(weights, shape))(x.clone(), x.bfloat16())
    assert found.shape == expected.shape
    return float((found.double() - expected).abs().max() / expected.abs().max())


@tiled_only
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rows", [1, 15, 16, 17, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 33])
def test_the_trunk_is_that_of_the_network(shape, rows):
    assert difference(weights_of(shape), shape, rows) < 2e-2


@tiled_only
@pytest.mark.parametrize("part", ["weight", "bias", "scale", "shift"])
def test_a_layer_with_anothers_weights_is_noticed(part):
    shape = SHAPES[3]
    weights = weights_of(shape)
    swapped = dict(weights)
    swapped[f"trunk.2.{part}"], swapped[f"trunk.3.{part}"] = (
        weights[f"trunk.3.{part}"],
        weights[f"trunk.2.{part}"],
    )
    assert difference(weights, shape, 40, tiles.TiledTrunk(swapped, shape)) > 5e-2


@tiled_only
def test_a_state_has_the_same_value_whatever_is_beside_it():
    shape = SHAPES[3]
    trunk = tiles.TiledTrunk(weights_of(shape), shape)
    x = torch.randn(100, shape.width)
    together = trunk(x.clone(), x.bfloat16())
    for first, last in ((0, 1), (30, 64), (60, 100)):
        alone = trunk(x[first:last].clone(), x[first:last].bfloat16())
        assert torch.equal(alone, together[first:last])


def test_the_layout_of_a_weight_is_tiles_of_pairs():
    width = 64
    weight = torch.arange(width * width).view(width, width).remainder(128).float()
    tiled = tiles.tiled(weight).view(width // 16, width // 32, 16, 16, 2)
    for out, deep in ((0, 0), (17, 33), (63, 62), (5, 31)):
        assert tiled[out // 16, deep // 32, deep % 32 // 2, out % 16, deep % 2] == weight[out, deep]


def test_widths_that_the_kernel_does_not_know_take_the_other_path():
    assert not tiles.usable(PolicyShape(32, 48, 2))


@tiled_only
def test_the_fused_network_uses_tiles_and_comes_to_the_same_without_them(set_up, monkeypatch):
    levels = {"slab_size": 16, "policy_rows": "ragged", "fold": "on", "fused_trunk": "on", "screen16": "on"}
    low = set_up(levels).machinery.screen.low
    states = set_up(levels).kb.facts[:50, None].expand(-1, 6, -1).contiguous()
    found = low.hidden(states)
    assert low.trunk is not None
    monkeypatch.setattr(low, "trunk", None)
    assert torch.allclose(low.hidden(states).float(), found.float(), atol=0.05)
