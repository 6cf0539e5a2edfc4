"""Importance functions: shapes of layers, what each component sees, and stacks of them."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.maths.importance import (
    ImportanceFn,
    ImportanceSet,
    StackedImportanceSet,
    layer_shapes,
)
from perfsweep.workloads.spd.maths.sites import Site, by_width

SITE = Site("a.b", "linear", 3, 5, 2, 0)


@pytest.mark.parametrize(
    ("kind", "shapes"),
    [
        ("mlp", [((2, 1, 7), (2, 7), 1), ((2, 7, 6), (2, 6), 7), ((2, 6, 1), (2, 1), 6)]),
        ("vector_mlp", [((3, 14), (2, 7), 3), ((2, 7, 6), (2, 6), 7), ((2, 6, 1), (2, 1), 6)]),
        ("shared_mlp", [((3, 7), (7,), 3), ((7, 6), (6,), 7), ((6, 2), (2,), 6)]),
    ],
)
def test_layers_of_each_kind(kind: str, shapes: list) -> None:
    assert layer_shapes(kind, SITE, (7, 6)) == shapes
    function = ImportanceFn(SITE, kind, (7, 6), torch.Generator().manual_seed(0))
    assert [tuple(weight.shape) for weight in function.weights] == [weight for weight, _, _ in shapes]
    assert [tuple(bias.shape) for bias in function.biases] == [bias for _, bias, _ in shapes]
    assert not any(bias.any() for bias in function.biases)


def test_values_begin_as_loud_as_what_is_read() -> None:
    wide = Site("w", "linear", 400, 1, 30, 0)
    function = ImportanceFn(wide, "shared_mlp", (300,), torch.Generator().manual_seed(0))
    stds = [
        float(weight.detach().std()) * math.sqrt(fan)
        for weight, fan in zip(function.weights, (400, 300), strict=True)
    ]
    assert stds == pytest.approx([math.sqrt(2.0), 1.0], rel=0.02)


def filled(kind: str, sites: tuple[Site, ...], hidden: tuple[int, ...]) -> ImportanceSet:
    made = ImportanceSet(sites, kind, hidden, torch.Generator().manual_seed(0), torch.float64)
    for number, parameter in enumerate(made.parameters()):
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(number))
    return made


def test_a_component_of_mlp_sees_its_own_activation_alone() -> None:
    function = filled("mlp", (SITE,), (4,)).functions["a-b"]
    a = torch.rand(6, 2, dtype=torch.float64)
    (w0, w1), (b0, b1) = function.weights, function.biases
    for c in range(2):
        alone = F.gelu(a[:, c, None] @ w0[c] + b0[c]) @ w1[c] + b1[c]
        assert torch.allclose(function(a)[:, c], alone[:, 0])


def test_a_component_of_vector_mlp_has_a_network_of_its_own() -> None:
    function = filled("vector_mlp", (SITE,), (4,)).functions["a-b"]
    x = torch.rand(6, 3, dtype=torch.float64)
    (w0, w1), (b0, b1) = function.weights, function.biases
    for c in range(2):
        alone = F.gelu(x @ w0[:, 4 * c : 4 * c + 4] + b0[c]) @ w1[c] + b1[c]
        assert torch.allclose(function(x)[:, c], alone[:, 0])


def test_components_of_shared_mlp_are_outputs_of_one_network() -> None:
    function = filled("shared_mlp", (SITE,), (4,)).functions["a-b"]
    x = torch.rand(2, 3, 3, dtype=torch.float64)
    (w0, w1), (b0, b1) = function.weights, function.biases
    assert torch.allclose(function(x), F.gelu(x @ w0 + b0) @ w1 + b1)


SITES = (
    SITE,
    Site("c", "linear", 3, 4, 2, 0),
    Site("d", "linear", 8, 4, 2, 1),
    Site("e", "linear", 3, 3, 5, 1),
)


@pytest.mark.parametrize("kind", ["mlp", "vector_mlp", "shared_mlp"])
@pytest.mark.parametrize("hidden", [(4,), (4, 3)])
def test_stacked_functions_are_the_same_functions(kind: str, hidden: tuple[int, ...]) -> None:
    single = filled(kind, SITES, hidden)
    stacked = StackedImportanceSet(single, by_width(SITES))
    inputs = {
        site.name: torch.rand(2, 3, site.count if kind == "mlp" else site.d_in, dtype=torch.float64)
        for site in SITES
    }
    alone, together = single(inputs), stacked(inputs)
    assert list(together) == [("a.b", "c", "d"), ("e",)]
    for number, name in enumerate(("a.b", "c", "d")):
        assert torch.allclose(together["a.b", "c", "d"][number], alone[name,])
    assert torch.allclose(together["e",], alone["e",])
    own, stacks = single.named_tensors(), stacked.named_tensors()
    assert own.keys() == stacks.keys()
    assert all(torch.equal(own[name], stacks[name]) for name in own)
    assert "importance.a-b.weights.0" in own
    assert f"importance.e.biases.{len(hidden)}" in own


def test_token_ids_are_read_by_mlp_alone() -> None:
    ids = Site("embed", "embedding", 9, 4, 2, None)
    ImportanceFn(ids, "mlp", (3,), torch.Generator())
    with pytest.raises(
        ConfigError, match="importance=shared_mlp cannot read token ids: embed is an embedding"
    ):
        ImportanceFn(ids, "shared_mlp", (3,), torch.Generator())
