"""Networks to decompose: what a specification changes of them, and that they are the same whenever drawn."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

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


@pytest.mark.parametrize(
    ("scaled", "by_layer", "scales"),
    [(True, False, [0.5, 0.5]), (True, True, [0.5, 0.25]), (False, True, [1, 0.5]), (False, False, [1, 1])],
)
def test_products_of_attention_are_divided_as_the_specification_says(
    scaled: bool, by_layer: bool, scales: list[float]
) -> None:
    network = build(TargetSpec(**GPT2, scaled=scaled, scaled_by_layer=by_layer))
    draw_values(network, 0, std=0.7)
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))
    for number, scale in enumerate(scales):
        attention = network.get_submodule(f"h.{number}.attn")
        parts = attention.c_attn(x).chunk(3, dim=-1)  # type: ignore[operator, union-attr]
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        expected = attention.c_proj(mixed.transpose(1, 2).flatten(2))  # type: ignore[operator, union-attr]
        assert torch.allclose(attention(x), expected, atol=1e-6)


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_is_the_table_or_its_own_and_is_published_either_way(tied: bool) -> None:
    network = build(TargetSpec(**GPT2, tied=tied))
    draw_values(network, 0)
    hidden = torch.randn(1, 3, 8)
    table, head = network.get_parameter("wte.weight"), network.published()["lm_head.weight"]
    assert torch.equal(head, table) == tied
    assert torch.allclose(network.head(hidden), hidden @ head.T)
    assert all(name.startswith("transformer.") for name in network.published() if name != "lm_head.weight")


def test_a_toy_gives_back_what_its_weights_and_bias_leave_above_zero() -> None:
    toy = build(TargetSpec("tms", features=4, hidden=2))
    draw_values(toy, 3, std=1.0)
    x = torch.rand(6, 4)
    down, up = toy.get_parameter("linear1.weight"), toy.get_parameter("linear2.weight")
    assert torch.allclose(toy(x), (x @ down.T @ up.T).clamp(min=0), atol=1e-6)
    assert math.isclose(float(toy.get_parameter("linear2.bias").abs().sum()), 0.0)
