"""The trunk by blocks: layer by layer what the network is, by every product, for any number of states."""

from __future__ import annotations

import platform

import pytest
import torch

from perfsweep.workloads.native import compiler_here
from perfsweep.workloads.prover.kernels import fused_trunk
from perfsweep.workloads.prover.kernels.fused_trunk import BlockTrunk, products
from perfsweep.workloads.prover.maths.policy import PolicyShape

SHAPES = [
    PolicyShape(width, width, layers) for width, layers in ((32, 2), (64, 1), (128, 0), (256, 8), (512, 1))
]
FULL = SHAPES[3]
VECTORS = {"256 bits": ("-mno-avx512f", "-mno-avx512bf16"), "128 bits": ("-mno-avx", "-mno-avx2")}
"""What the compiler may use: kernels for lesser processors run on this one."""
PARTS = ("bias", "scale", "shift")
TOLERANCE = {"float32": 1e-5, "pairs": 2e-2, "tiles": 2e-2}
"""Relative to the largest value; 16 bits of which 8 are digits round by 2^-9, layer after layer."""

pytestmark = pytest.mark.skipif(compiler_here() is None, reason="no C++ compiler")


def weights_of(shape):
    """Weights of a trunk, every bias, scale and shift its own."""
    names = [*(f"trunk.{layer}" for layer in range(1, shape.layers + 1)), "hidden"]
    weights = {f"{name}.weight": torch.randn(shape.width, shape.width) / shape.width**0.5 for name in names}
    weights |= {
        f"{name}.{part}": torch.randn(shape.width) for name in names for part in ("bias", "scale", "shift")
    }
    return weights


def reference(weights, shape, x, low):
    """Each layer by itself in float64, from inputs and weights rounded as the kernel rounds them."""

    def rounded(value):
        return value.float().bfloat16().double() if low else value.double()

    def product(x, name):
        product = rounded(x) @ rounded(weights[f"{name}.weight"]).T
        return torch.relu(product + weights[f"{name}.bias"].double())

    x = x.double()
    for layer in range(1, shape.layers + 1):
        r = product(x, f"trunk.{layer}")
        normal = (r - r.mean(1, keepdim=True)) / (r.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        x = x + normal * weights[f"trunk.{layer}.scale"].double() + weights[f"trunk.{layer}.shift"].double()
    return product(x, "hidden")


def run(trunk, x, product):
    return trunk(x.clone(), x.clone() if product == "float32" else x.bfloat16())


def difference(weights, shape, rows, product, trunk=None):
    """Of kernel and reference, relative to the largest value."""
    x = torch.randn(rows, shape.width)
    expected = reference(weights, shape, x, low=product != "float32")
    found = run(trunk or BlockTrunk(weights, shape, product), x, product)
    assert found.shape == expected.shape
    return float((found.double() - expected).abs().max() / expected.abs().max())


@pytest.fixture(params=TOLERANCE)
def product(request):
    if request.param not in (*products(low=False), *products(low=True)):
        pytest.skip(f"this processor has no {request.param}")
    return request.param


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rows", [1, 13, 48, 65, 225])
def test_the_trunk_is_that_of_the_network(product, shape, rows):
    assert difference(weights_of(shape), shape, rows, product) < TOLERANCE[product]


@pytest.mark.workloads
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flags are those of x86")
@pytest.mark.parametrize("vectors", VECTORS)
def test_the_trunk_is_that_of_the_network_on_lesser_processors(vectors):
    weights, flags = weights_of(FULL), VECTORS[vectors]
    assert not products(low=True, flags=flags)
    trunk = BlockTrunk(weights, FULL, "float32", flags)
    for rows in (1, 7, 100):
        assert difference(weights, FULL, rows, "float32", trunk) < TOLERANCE["float32"]


@pytest.mark.parametrize("part", ["weight", "bias", "scale", "shift"])
def test_a_layer_with_anothers_weights_is_noticed(product, part):
    weights = weights_of(FULL)
    swapped = dict(weights)
    swapped[f"trunk.2.{part}"], swapped[f"trunk.3.{part}"] = (
        weights[f"trunk.3.{part}"],
        weights[f"trunk.2.{part}"],
    )
    assert difference(weights, FULL, 40, product, BlockTrunk(swapped, FULL, product)) > 5e-2


def test_a_state_has_the_same_value_whatever_is_beside_it(product):
    trunk = BlockTrunk(weights_of(FULL), FULL, product)
    x = torch.randn(100, FULL.width)
    together = run(trunk, x, product)
    for first, last in ((0, 1), (30, 64), (60, 100)):
        assert torch.equal(run(trunk, x[first:last], product), together[first:last])


def test_threads_share_the_states_and_change_none(product):
    trunk = BlockTrunk(weights_of(FULL), FULL, product)
    x = torch.randn(300, FULL.width)
    alone = run(trunk, x, product)
    torch.set_num_threads(3)
    try:
        assert torch.equal(run(trunk, x, product), alone)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("low", [False, True])
def test_widths_that_the_kernels_do_not_know_take_the_other_path(low):
    assert fused_trunk.block_trunk({}, PolicyShape(32, 48, 2), low) is None


def test_a_processor_without_bfloat16_takes_the_other_path(monkeypatch):
    monkeypatch.setattr(fused_trunk, "products", lambda low: ())
    assert fused_trunk.block_trunk({}, FULL, True) is None


def test_states_come_out_of_the_tables_as_the_first_layer_says(product):
    """Against plain PyTorch, gathers, normalisation and all; unequal offsets and biases are noticed."""
    weights = weights_of(FULL) | {f"trunk.0.{part}": torch.randn(FULL.width) for part in PARTS}
    table, states = torch.randn(60, FULL.width), torch.zeros(100, 6, 3, dtype=torch.int16)
    table[[0, 10, 35]] = 0  # padding of each table
    for slots in range(1, 7):
        states[slots::7, :slots] = torch.randint(1, 10, states[slots::7, :slots].shape, dtype=torch.int16)
    rows = states.long() + torch.tensor([0, 10, 35])
    embedded = (table[rows].sum(2) * 0.5 ** torch.arange(6.0)[:, None]).sum(1) + weights["trunk.0.bias"]
    x = torch.nn.functional.layer_norm(
        embedded.relu(), (FULL.width,), weights["trunk.0.scale"], weights["trunk.0.shift"]
    )
    expected = reference(weights, FULL, x, low=product != "float32")

    def off_by(weights, offsets):
        found = BlockTrunk(weights, FULL, product, table=table, offsets=offsets).of_states(states)
        return float((found.double() - expected).abs().max() / expected.abs().max())

    assert off_by(weights, (10, 35)) < TOLERANCE[product]
    assert off_by(weights, (10, 34)) > 5e-2
    for part in PARTS:
        assert off_by({**weights, f"trunk.0.{part}": weights[f"trunk.1.{part}"]}, (10, 35)) > 5e-2


@pytest.mark.parametrize("low", [False, True], ids=["float32", "screened"])
def test_the_fused_network_uses_blocks_and_comes_to_the_same_without_them(set_up, monkeypatch, low):
    if low and not products(low):
        pytest.skip("this processor has no products of bfloat16")
    levels = {"slab_size": 16, "policy_rows": "ragged", "fold": "on", "fused_trunk": "on", "screen16": "on"}
    arm = set_up(levels).arm
    policy = arm.low if low else arm.policy
    states = set_up(levels).kb.facts[:50, None].expand(-1, 6, -1).contiguous()
    found = policy.hidden(states)
    assert policy.trunk is not None
    monkeypatch.setattr(policy, "trunk", None)
    assert torch.allclose(policy.hidden(states).float(), found.float(), atol=0.05 if low else 1e-5)
