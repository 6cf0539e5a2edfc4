"""The hand-written step and verdict do what the operators do, pair by pair, on states of every kind."""

from __future__ import annotations

import shutil
from dataclasses import fields, replace

import pytest
import torch

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import Constants, prior_logit, rms_scale
from perfsweep.workloads.probe1d.maths import certify
from perfsweep.workloads.probe1d.maths.blocks import Block, make_block
from perfsweep.workloads.probe1d.maths.certify import SumErrors
from perfsweep.workloads.probe1d.maths.derivatives import EventSums, combine, scaled_gradient
from perfsweep.workloads.probe1d.maths.newton import (
    Limits,
    NewtonRules,
    NewtonState,
    newton_decrement,
    torch_step,
)
from perfsweep.workloads.probe1d.maths.separable import binary_start

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
LATENTS, CLASSES, ROWS = 40, 9, 2000
RULES = NewtonRules(7.5e-7, 3.75e-7, 7.5e-7)


def problem(flat):
    """A block of pairs, separable ones and a dead latent among them, its events [L, K] and its limits."""
    make = torch.Generator().manual_seed(0)
    count = torch.randint(1, 60, (LATENTS,), generator=make).double()
    count[0] = 0
    inside = torch.arange(64) < count[:, None]
    x = torch.randn(LATENTS, 64, generator=make).exp().double() * inside
    labels = (torch.rand(LATENTS, CLASSES, 64, generator=make) < 0.1) & inside[:, None]
    hits, hit_sum = labels.sum(2).double(), (labels * x[:, None]).sum(2)
    positives = (hits.max(0).values + torch.arange(CLASSES) * 20).double()
    positives[-1] = 0
    hits[:, -1], hit_sum[:, -1] = 0, 0
    scale, none = rms_scale(count, x.square().sum(1)), torch.zeros(LATENTS)
    constants = Constants(  # of mean 0, whose label sums are those of x itself
        *(ROWS, count, none, none, positives, prior_logit(positives, ROWS), hits, hit_sum, scale),
        *(1e-8 * scale**2, 0.0),
    )
    block = make_block(constants, torch.arange(CLASSES), torch.full_like(count, 64), torch.float64, flat=flat)
    rank = block.latent
    least = x.masked_fill(x == 0, torch.inf).amin(1)
    return block, x, Limits(scale[rank, None], x.amax(1)[rank, None], least[rank, None])


def sums(x, block: Block, b, w) -> EventSums:
    events = x[block.latent, None]
    eta = b[..., None] + w[..., None] * events
    mu = torch.sigmoid(eta)
    s = mu * torch.sigmoid(-eta)
    terms = (mu, s, s * events, s * events * events, mu * events)
    return EventSums(*(term.sum(-1) for term in terms))


def start(block: Block) -> NewtonState:
    total = block.count * block.scale  # a rough sum of x: starts need not be good
    return NewtonState.start(*binary_start(block, total, 1e-6), (block.count == 0).expand_as(block.pair))


def copied(state: NewtonState) -> NewtonState:
    return replace(state, **{part.name: getattr(state, part.name).clone() for part in fields(state)})


def worst_difference(found: NewtonState, expected: NewtonState) -> float:
    return max(
        float(
            (
                (getattr(found, name) - getattr(expected, name)).abs() / (1 + getattr(expected, name).abs())
            ).max()
        )
        for name in ("b", "w", "lam", "db", "dw", "g0", "g1")
    )


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("without", [(), ("reach",), ("least",)])
def test_every_pass_moves_every_pair_as_the_operators_do(flat, without):
    from perfsweep.workloads.probe1d.kernels.native_step import NativeStep

    native = NativeStep()
    block, x, limits = problem(flat)
    limits = replace(limits, **dict.fromkeys(without))
    state, halved = start(block), 0.0
    for _ in range(18):
        at = sums(x, block, state.b, state.w)
        expected = torch_step(block, copied(state), at, limits, RULES)
        found = native(block, copied(state), at, limits, RULES)
        assert worst_difference(found.state, expected.state) < 1e-9
        assert torch.equal(found.state.done, expected.state.done)
        assert torch.equal(found.state.evals, expected.state.evals)
        assert torch.allclose(found.state.gmax, expected.state.gmax, rtol=1e-6, atol=1e-12)
        assert float(found.halved) == float(expected.halved)
        assert float(found.lam_max) == float(expected.lam_max)
        assert bool(found.all_done) == bool(expected.all_done)
        state, halved = expected.state, halved + float(found.halved)
    assert halved > 0
    assert float(expected.lam_max) == 0, "damping ends: any would cost Newton its quadratic convergence"
    assert 0 < state.done.sum() < state.done.numel() or bool(state.done.all())


def sure_and_true(spoil):
    """Bounds of gradients of the pairs that a step is sure of, and their gradients and decrements.

    Sums are off by `spoil` times what float32 may be off by, in either direction.
    """
    from perfsweep.workloads.probe1d.kernels.native_step import NativeStep

    native = NativeStep()
    block, x, limits = problem(flat=True)
    additions = torch.full_like(block.scale, 64)
    limits = replace(limits, additions=additions, positive=torch.ones_like(additions))
    state, make = start(block), torch.Generator().manual_seed(1)
    for _ in range(12):
        at = sums(x, block, state.b, state.w)
        off = SumErrors.of_rounding(at, state.b, state.w, limits.reach, additions, limits.positive == 1)
        size = {"m0": off.zeroth, "a0": off.zeroth, "m1": off.first, "a1": off.first, "a2": off.second}
        shifts = {
            name: spoil * (2.0 * torch.randint(2, part.shape, generator=make) - 1) * part
            for name, part in size.items()
        }
        wrong = replace(at, **{name: getattr(at, name) + shift for name, shift in shifts.items()})
        state = native(block, state, wrong, limits, RULES).state
    loss = combine(
        block.unpenalised(), state.b, state.w, sums(x, block, state.b, state.w), 1 / ROWS, clip=0.0
    )
    true = scaled_gradient(block, loss.g0, loss.g1)
    return state.gmax[state.sure], true[state.sure], newton_decrement(loss)[state.sure]


def test_a_pair_that_a_step_is_sure_of_is_at_its_minimum_whatever_rounding_does_to_sums():
    bound, true, decrement = sure_and_true(0.99)  # bounds are taken of the sums that are off
    assert bound.numel() > 200
    assert (true <= bound * (1 + 1e-9)).all()
    assert (bound <= RULES.tol).all()
    assert (decrement <= RULES.decrement).all()


def test_sums_that_are_further_off_break_what_a_step_is_sure_of():
    bound, true, _ = sure_and_true(100.0)
    assert (true > bound * (1 + 1e-9)).any()


@pytest.mark.parametrize("share", [0.0, 1e-6])
def test_a_verdict_is_that_of_the_operators(share):
    from perfsweep.workloads.probe1d.kernels.native_step import NativeStep

    block, x, limits = problem(flat=True)
    state = start(block)
    for _ in range(2):
        state = torch_step(block, state, sums(x, block, state.b, state.w), limits, RULES).state
    at = sums(x, block, state.b, state.w)
    off = SumErrors(share * at.m0, share * at.m0, share * at.a2).times(1 / ROWS)
    judge = certify.Certifier.__new__(certify.Certifier)
    judge.rules, judge.verdict, judge.counts = NewtonRules(1e-6), None, Counts()
    judge.reach, judge.least = (
        torch.stack([part[block.latent == number].mean() for number in range(LATENTS)])
        for part in (limits.reach, limits.least)
    )
    judge.ill_conditioned = torch.zeros(LATENTS, dtype=torch.bool)
    gmax, passed = judge._judge(block, state.b, state.w, at, off)
    judge.verdict = NativeStep().verdict
    found, also = judge._judge(block, state.b, state.w, at, off)
    assert torch.allclose(found, gmax, rtol=1e-9, atol=1e-12)
    assert torch.equal(also, passed)
    assert 0 < passed.sum() < passed.numel()


@pytest.mark.parametrize("fused", ["on", "off"])
def test_every_step_of_the_fused_kernel_is_taken_by_it(solve, monkeypatch, fused: str) -> None:
    from perfsweep.workloads.probe1d.kernels.native_step import NativeStep

    taken, right = [], NativeStep.__call__

    def counted(self, *words):
        taken.append(1)
        return right(self, *words)

    monkeypatch.setattr(NativeStep, "__call__", counted)
    levels = {"solver": "newton", "csc_layout": "on", "fused_kernel": fused, "active_set": "pair"}
    made = solve(levels, data="test", metrics=False)
    assert bool(taken) is (fused == "on")
    assert 0 < made.counters()["compacted_pairs"] <= made.progress()
