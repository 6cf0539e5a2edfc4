"""Which modules are decomposed, what is refused, and how tensors of several modules stand together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.maths.layers import Conv1D
from perfsweep.workloads.spd.maths.sites import (
    Site,
    bias_of,
    by_width,
    each,
    find_sites,
    one_by_one,
    slots,
    stack,
    unstack,
    weight_of,
)


class Odd(nn.Linear):
    """Doubles what it reads."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(2 * input)


class Target(nn.Module):
    """Modules of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 2)
        self.down = nn.Linear(2, 3, bias=False)
        self.up = Conv1D(3, 2)
        self.same = nn.Identity()
        self.odd = Odd(2, 2)
        self.renormed = nn.Embedding(7, 2, max_norm=1.0)
        self.norm = nn.LayerNorm(2)

    def stage_of(self, name: str) -> int | None:
        return {"down": 0, "up": 1}.get(name)


@pytest.fixture
def target() -> Any:
    return Target()


def test_sites_stand_in_the_order_of_patterns_and_then_of_the_network(target: Any) -> None:
    sites = find_sites(target, [("up", 5), ("down", 4), ("embed", 6)])
    assert sites == (
        Site("up", "conv1d", 3, 2, 5, 1),
        Site("down", "linear", 2, 3, 4, 0),
        Site("embed", "embedding", 7, 2, 6, None),
    )
    named = [site.name for site in find_sites(target, [("[ed]*", 4)])]
    assert named == ["embed", "down"]


def test_an_identity_is_as_wide_as_it_is_said_to_be(target: Any) -> None:
    (site,) = find_sites(target, [("same", 3)], identity_width=4)
    assert site == Site("same", "identity", 4, 4, 3, None)
    with pytest.raises(ConfigError, match="same is an Identity, whose width is unknown"):
        find_sites(target, [("same", 3)])


@pytest.mark.parametrize(
    ("patterns", "sentence"),
    [
        ([("down", 1), ("d*", 1)], r"down is matched twice, the second time by 'd\*'; narrow one pattern"),
        ([("down", 0)], "components=0 of pattern 'down' .* a whole number from 1"),
        ([("norm", 1)], "pattern 'norm' matches no module .* modules are: embed, down, up, same, odd"),
        ([("Down", 1)], "pattern 'Down' matches no module"),
        ([("odd", 1)], "odd is a Odd with a forward of its own, not that of Linear; leave it out"),
        ([("renormed", 1)], "renormed is an embedding with max_norm"),
    ],
)
def test_what_cannot_be_decomposed_is_named(target: Any, patterns: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        find_sites(target, patterns)


@pytest.mark.parametrize("name", ["down", "up", "embed"])
def test_every_kind_reads_as_its_module_without_bias(target: Any, name: str) -> None:
    (site,) = find_sites(target, [(name, 2)])
    leaf = target.get_submodule(name)
    x = torch.tensor([[1, 3]]) if name == "embed" else torch.arange(2.0 * site.d_in).view(2, site.d_in)
    if name == "up":
        nn.init.normal_(leaf.weight)
        nn.init.normal_(leaf.bias)
    bias = bias_of(leaf)
    assert (bias is not None) == (name == "up")
    assert torch.allclose(site.base(x, leaf), leaf(x) - (0.0 if bias is None else bias), atol=1e-6)
    assert torch.equal(site.read(x, weight_of(leaf, site.kind, 0).T), site.base(x, leaf)) or name == "down"
    assert site.positions(x) == (x.shape if name == "embed" else x.shape[:-1])


def test_an_identity_gives_what_it_reads() -> None:
    site = Site("a.b.c", "identity", 3, 3, 2, None)
    x = torch.rand(2, 3)
    assert site.base(x, nn.Identity()) is x
    assert torch.equal(weight_of(nn.Identity(), "identity", 3), torch.eye(3))
    assert site.key == "a-b-c"


SITES = tuple(Site(name, "linear", 1, 1, count, 0) for name, count in (("a", 2), ("b", 3), ("c", 2)))


def test_modules_stand_alone_or_by_their_number_of_subcomponents() -> None:
    assert one_by_one(SITES) == (("a",), ("b",), ("c",))
    assert by_width(SITES) == (("a", "c"), ("b",))


def test_stacks_come_apart_as_they_were_put_together() -> None:
    tensors = {name: torch.full((2,), float(number)) for number, name in enumerate("abc")}
    stacks = stack(tensors, by_width(SITES))
    assert {names: tensor.tolist() for names, tensor in stacks.items()} == {
        ("a", "c"): [[0, 0], [2, 2]],
        ("b",): [1, 1],
    }
    assert {name: tensor.tolist() for name, tensor in unstack(stacks).items()} == {
        "a": [0, 0],
        "c": [2, 2],
        "b": [1, 1],
    }
    sums = each(torch.add, stacks, stacks)
    assert sums["a", "c"].tolist() == [[0, 0], [4, 4]]
    assert sums["b",].tolist() == [2, 2]


def test_slots_are_written_through() -> None:
    stacks = {("a", "c"): torch.zeros(2, 2), ("b",): torch.zeros(2)}
    for number, part in enumerate(slots(stacks).values(), 1):
        part.fill_(number)
    assert stacks["a", "c"].tolist() == [[1, 1], [2, 2]]
    assert stacks["b",].tolist() == [3, 3]
