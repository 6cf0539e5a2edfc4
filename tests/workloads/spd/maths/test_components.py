"""V and U, what they leave of a weight, and when weights are looked up."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from perfsweep.workloads.spd.maths.components import Components, Operands, normal
from perfsweep.workloads.spd.maths.sites import Site
from perfsweep.workloads.spd.maths.target import Target

SITE = Site("one", "linear", 3, 5, 2, 0)


ROWS = np.ones((4, 3), np.float32)


class One(Target):
    """A single linear module."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(3, 5)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.one(hidden)


def test_a_component_matrix_is_the_transposed_product() -> None:
    made = Components(SITE, torch.Generator().manual_seed(0))
    assert made.V.shape == (3, 2)
    assert made.U.shape == (2, 5)
    assert torch.allclose(made.weight, torch.einsum("ic,co->oi", made.V, made.U), atol=1e-6)


def test_values_begin_with_one_over_the_root_of_what_is_added_up() -> None:
    made = Components(Site("w", "linear", 400, 300, 100, 0), torch.Generator().manual_seed(0))
    assert float(made.V.std()) == pytest.approx(400**-0.5, rel=0.02)
    assert float(made.U.std()) == pytest.approx(100**-0.5, rel=0.02)
    drawn = normal((100, 100), 4, torch.Generator().manual_seed(0), torch.float32, gain=3.0)
    assert float(drawn.std()) == pytest.approx(1.5, rel=0.02)
    assert drawn.dtype == torch.float32


@pytest.mark.parametrize(("level", "looked_up"), [("naive", 3), ("cached_w", 1)])
def test_what_is_left_of_a_weight_and_how_often_it_is_looked_up(arm_of, level: str, looked_up: int) -> None:
    network = One()
    arm = arm_of(network, (SITE,), ROWS, {"modules": ["one"], "batch_size": 2}, delta=level)
    pair = arm.decomposition.operands()["one"]
    for _ in range(3):
        left = arm.deltas({"one": pair})["one"]
        assert torch.allclose(left + (pair.V @ pair.U).T, network.one.weight, atol=1e-6)
    assert left.requires_grad
    assert arm.counts["weight_fetches"] == looked_up


def test_cached_weights_do_not_outlive_the_training(arm_of) -> None:
    network = One()
    arm = arm_of(network, (SITE,), ROWS, {"modules": ["one"], "batch_size": 2}, delta="cached_w")
    arm.deltas(arm.decomposition.operands())
    alive = weakref.ref(network)
    del network, arm
    gc.collect()
    assert alive() is None


def test_detached_operands_have_the_values_and_no_graph() -> None:
    made = Components(SITE, torch.Generator().manual_seed(0))
    delta = made.weight * 2
    bare, full = Operands(made.V, made.U).detached(), Operands(made.V, made.U, delta).detached()
    assert bare.delta is None
    assert full.delta is not None and torch.equal(full.delta, delta) and not full.delta.requires_grad
    assert torch.equal(full.V, made.V) and torch.equal(full.U, made.U)
    assert not (full.V.requires_grad or full.U.requires_grad)
