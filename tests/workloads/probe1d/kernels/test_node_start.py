"""Pairs start where nodes in place of events have their solution, or far out where they have none."""

from __future__ import annotations

import shutil

import pytest
import torch

from perfsweep.workloads.probe1d.data.problem import SCALED, Csr, Labels, constants
from perfsweep.workloads.probe1d.maths.blocks import Block, make_block
from perfsweep.workloads.probe1d.maths.buckets import build_layout, reorder, to_csc
from perfsweep.workloads.probe1d.maths.derivatives import EventSums, combine, scaled_gradient
from perfsweep.workloads.probe1d.maths.separable import binary_start

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
ROWS, TOL = 4000, 1e-6


def started(
    values: torch.Tensor, labels: torch.Tensor
) -> tuple[Block, torch.Tensor, torch.Tensor, torch.Tensor]:
    """One latent with `values` in the first rows, labels bool [N, C]: block, sum of values, start (b, w)."""
    from perfsweep.workloads.probe1d.kernels.native import NodeStart

    filled = torch.arange(ROWS + 1).clamp(max=values.numel())
    x = Csr(filled, torch.zeros(values.numel(), dtype=torch.int64), values, 1)
    grid = torch.arange(labels.shape[1])
    layout = build_layout(to_csc(x), torch.float32)
    sums = reorder(constants(x, Labels(grid.numel(), multi=labels), grid, SCALED), layout.order)
    block = make_block(sums, grid, layout.slots, torch.float64)
    return block, sums.sum_x[:, None], *NodeStart(layout, sums.count)(block, TOL)


def gradient(values: torch.Tensor, block: Block, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Scaled gradient of the mean loss on all events, [C]."""
    x = torch.zeros(ROWS - int(block.zeros[0, 0]), dtype=torch.float64)
    x[: values.numel()] = values
    eta = b[0, :, None] + w[0, :, None] * x
    mu, s = torch.sigmoid(eta), torch.sigmoid(eta) * torch.sigmoid(-eta)
    terms = (mu, s, s * x, s * x * x, mu * x)
    found = combine(block, b, w, EventSums(*(term.sum(1)[None] for term in terms)), 1 / ROWS, clip=0.0)
    return scaled_gradient(block, found.g0, found.g1)[0]


def mixed(events: int, classes: int = 21) -> tuple[torch.Tensor, torch.Tensor]:
    """Values of one sign and labels that they tell a little of."""
    make = torch.Generator().manual_seed(events)
    values = torch.randn(events, generator=make).exp()
    share = torch.full((ROWS, classes), 0.05)
    share[:events] = torch.sigmoid(values - 2)[:, None]
    return values, torch.rand(share.shape, generator=make) < share


def test_nodes_of_few_events_are_the_events_and_a_start_is_the_solution():
    values, labels = mixed(15, 40)
    block, _, b, w = started(values, labels)
    both = (block.hits > 1) & (block.hits < 14)
    assert both.sum() > 10
    assert gradient(values, block, b, w)[both[0]].median() < 1e-6


def test_a_start_on_nodes_is_far_nearer_than_values_taken_as_present_or_absent():
    values, labels = mixed(700)
    block, sum_x, *near = started(values, labels)
    far = binary_start(block, sum_x, TOL)
    assert gradient(values, block, *near).max() < 0.02 * gradient(values, block, *far).min()


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("hit", [False, True])
@pytest.mark.parametrize("events", [9, 300])
def test_values_of_one_label_start_where_they_have_hardly_any_loss_left(sign, hit, events):
    values = sign * mixed(events)[0]
    labels = torch.zeros(ROWS, 1, dtype=torch.bool)
    labels[:events] = hit
    labels[events : events + 80] = True
    _, _, b, w = started(values, labels)
    eta = b + w * values.double()
    left = float((torch.sigmoid(-eta) if hit else torch.sigmoid(eta)).sum()) / ROWS
    assert 0.05 * TOL < left < TOL


def test_what_has_no_solution_starts_at_the_prior():
    values = torch.tensor([1.0, -2.0, 3.0, -0.5])
    labels = torch.zeros(ROWS, 3, dtype=torch.bool)
    labels[100:200, 1] = True  # values of either sign without a hit
    labels[:, 2] = True
    block, _, b, w = started(values, labels)
    assert torch.equal(b, block.prior)
    assert not w.any()
