"""Networks to decompose: what a specification changes of them, and that they are the same whenever drawn."""

from __future__ import annotations

import math

import pytest
import torch

from perfsweep.workloads.spd.maths.layers import Rotary
from perfsweep.workloads.spd.maths.target import build, draw_values
from perfsweep.workloads.spd.presets import TargetSpec

GPT2 = {
    "kind": "gpt2",
    "layers": 2,
    "width": 8,
    "heads": 2,
    "kv_heads": 2,
    "mlp": 16,
    "vocab": 11,
    "context": 6,
}


@pytest.mark.parametrize(
    "spec",
    [
        TargetSpec("tms", features=5, hidden=3),
        TargetSpec(**GPT2),
        TargetSpec(width=8, heads=2, kv_heads=1, mlp=16),
    ],
    ids=lambda spec: spec.kind,
)
def test_a_seed_decides_on_every_value_whatever_was_drawn_before(spec: TargetSpec) -> None:
    one, two, other = (build(spec) for _ in range(3))
    for network, seed in ((one, 1), (two, 1), (other, 2)):
        draw_values(network, seed)
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name]), name
    assert any(not torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_a_toy_gives_back_what_its_weights_and_bias_leave_above_zero() -> None:
    toy = build(TargetSpec("tms", features=4, hidden=2))
    draw_values(toy, 3, std=1.0)
    x = torch.rand(6, 4)
    down, up = toy.get_parameter("linear1.weight"), toy.get_parameter("linear2.weight")
    assert torch.allclose(toy(x), (x @ down.T @ up.T).clamp(min=0), atol=1e-6)
    assert math.isclose(float(toy.get_parameter("linear2.bias").abs().sum()), 0.0)


def test_one_rotation_of_queries_and_keys_equals_two_written_out() -> None:
    """By the formula in numbers, at other sizes of batch and heads than one another."""
    query, key = torch.rand(3, 4, 5, 6), torch.rand(3, 2, 5, 6)
    angles = torch.outer(torch.arange(5.0), 10_000.0 ** (-torch.arange(0, 6, 2) / 6))
    for fused in (False, True):
        found = Rotary(6, context=8, fused=fused)(query, key)
        for given, turned in zip((query, key), found, strict=True):
            a, b = given.chunk(2, -1)
            cos, sin = angles.cos(), angles.sin()
            expected = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
            torch.testing.assert_close(turned, expected)
