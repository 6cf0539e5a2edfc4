"""Loss, gradient and Hessian from sums, against automatic differentiation of the definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from perfsweep.workloads.probe1d.data.problem import Csr, Labels, Penalty, constants
from perfsweep.workloads.probe1d.maths.blocks import Block, make_block
from perfsweep.workloads.probe1d.maths.derivatives import EventSums, combine, scaled_gradient

X = torch.tensor([0.0, 2.0, 0.0, 0.5, -1.0], dtype=torch.float64)
Y = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0], dtype=torch.float64)
B, W = 0.3, -0.7


REPORT, SCALED = Penalty(0.01), Penalty(0.01, scaled=True)


def the_block(penalty: Penalty = REPORT) -> Block:
    at = X.nonzero()[:, 0]
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), (X != 0).long().cumsum(0)])
    x = Csr(indptr, torch.zeros_like(at), X[at], 1)
    made = constants(x, Labels(1, multi=Y.bool()[:, None]), torch.arange(1), penalty)
    return make_block(made, torch.arange(1), made.count, torch.float64)


def sums_at(b: float, w: float, labelled: bool) -> EventSums:
    x, y = X[X != 0], Y[X != 0]
    mu = torch.sigmoid(b + w * x)
    s = mu * (1 - mu)
    eta = b + w * x
    parts = [mu, s, s * x, s * x * x]
    m0, a0, a1, a2 = (part.sum().view(1, 1) for part in parts)
    if labelled:
        loss = (softplus(eta) - y * eta).sum().view(1, 1)
        residual = ((mu - y) * x).sum().view(1, 1)
        return EventSums(m0, a0, a1, a2, loss=loss, residual=residual, labels=y.sum().view(1, 1))
    return EventSums(m0, a0, a1, a2, m1=(mu * x).sum().view(1, 1), loss=softplus(eta).sum().view(1, 1))


def defined(b: Tensor, w: Tensor, prior: Tensor, unit: float, penalty: Penalty) -> Tensor:
    eta = b + w * X
    punished = (w * X.std(correction=0)) ** 2 if penalty.scaled else w * w + (b - prior) ** 2
    return (softplus(eta) - Y * eta).sum() * unit + penalty.ridge / 2 * punished


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("unit", [1.0, 0.2])
@pytest.mark.parametrize("penalty", [REPORT, SCALED])
def test_sums_combine_to_the_derivatives_of_the_definition(
    labelled: bool, unit: float, penalty: Penalty
) -> None:
    block = the_block(penalty)
    one, other = (torch.tensor([[value]], dtype=torch.float64, requires_grad=True) for value in (B, W))
    loss = defined(one, other, block.prior, unit, penalty)
    g0, g1 = torch.autograd.grad(loss.sum(), (one, other), create_graph=True)
    h0, h1 = torch.autograd.grad(g0.sum(), (one, other), retain_graph=True)
    (h2,) = torch.autograd.grad(g1.sum(), other)
    found = combine(block, one.detach(), other.detach(), sums_at(B, W, labelled), unit, clip=1e-12)
    assert found.loss is not None
    for name, right in (("loss", loss), ("g0", g0), ("g1", g1), ("h0", h0), ("h1", h1), ("h2", h2)):
        assert getattr(found, name).item() == pytest.approx(right.item(), rel=1e-10), name


def test_the_probability_of_silent_rows_is_clipped_at_both_ends() -> None:
    block = the_block(Penalty(1e-8))
    none = torch.zeros(1, 1, dtype=torch.float64)
    sums = EventSums(none, none, none, none, m1=none)
    for b, share in ((-50.0, 0.1), (50.0, 0.9)):
        at = torch.full((1, 1), b, dtype=torch.float64)
        found = combine(block, at, none, sums, 1.0, clip=0.1)
        assert found.g0.item() == pytest.approx(2 * share - 3, abs=1e-5)
        assert found.h0.item() == pytest.approx(2 * 0.09, abs=1e-6)
    assert found.loss is None


def test_a_scaled_gradient_knows_no_units() -> None:
    block = the_block()
    g0, g1 = torch.tensor([[-0.3]]), torch.tensor([[-0.2]])
    scale = block.scale.item()
    assert scale == pytest.approx((5.25 / 3) ** 0.5)
    assert scaled_gradient(block, g0, g1).item() == pytest.approx(0.3)
    assert scaled_gradient(block, g0, 10 * g1).item() == pytest.approx(2.0 / scale)
