"""Importance functions: shapes of layers, what each component sees, and stacks of them."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.spd.maths.importance import ImportanceSet, StackedImportanceSet
from perfsweep.workloads.spd.maths.sites import Site, by_width

SITE = Site("a.b", "linear", 3, 5, 2, 0)


def filled(kind: str, sites: tuple[Site, ...], hidden: tuple[int, ...]) -> ImportanceSet:
    made = ImportanceSet(sites, kind, hidden, torch.Generator().manual_seed(0), torch.float64)
    for number, parameter in enumerate(made.parameters()):
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(number))
    return made


SITES = (
    SITE,
    Site("c", "linear", 3, 4, 2, 0),
    Site("d", "linear", 8, 4, 2, 1),
    Site("e", "linear", 3, 3, 5, 1),
)


@pytest.mark.parametrize("kind", ["mlp", "vector_mlp", "shared_mlp"])
def test_stacked_functions_are_the_same_functions(kind: str) -> None:
    hidden = (4, 3)
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
