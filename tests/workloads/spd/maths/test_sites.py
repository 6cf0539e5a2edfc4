"""Which modules are decomposed, what is refused, and how tensors of several modules stand together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.maths.layers import Conv1D
from perfsweep.workloads.spd.maths.sites import Site, alone, find_sites, together


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
        self.odd.nf = 2  # a name that the Conv1D of transformers has
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


def test_what_stacks_hold_goes_with_its_module_into_other_stacks() -> None:
    pair, one = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([5.0, 6.0])
    held = {("a", "b"): (pair, 10 * pair, 7), ("c",): (one, 10 * one, 7)}
    plain = {names: [*map(str, parts)] for names, parts in alone(held).items()}
    rows = {"a": pair[0], "b": pair[1], "c": one}
    assert plain == {(name,): [str(row), str(10 * row), "7"] for name, row in rows.items()}
    back = together(alone(held), [("c",), ("b", "a"), ("d",)])
    assert back["c",] == held["c",] and [*back] == [("c",), ("b", "a")]
    assert [*map(str, back["b", "a"])] == [str(pair.flip(0)), str(10 * pair.flip(0)), "7"]
    ids, rest = Site("e", "embedding", 7, 2, 6, None), Site("d", "linear", 2, 3, 4, 0)
    assert (ids.positions(pair), rest.positions(pair)) == ((2, 2), (2,))
