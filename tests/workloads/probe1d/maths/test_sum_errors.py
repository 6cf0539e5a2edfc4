"""What float32 rounds stays within bounds: pairs certified by them are at their optimum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.maths.buckets import WIDE_LANE, Bucket, bucket_width
from perfsweep.workloads.probe1d.maths.certify import SumErrors
from perfsweep.workloads.probe1d.maths.derivatives import EventSums
from perfsweep.workloads.probe1d.maths.event_sums import EagerKernel, reduce_blocks
from perfsweep.workloads.probe1d.maths.precision import BLOCK_EVENTS, PRECISIONS


def events(seed, negative, spread):
    """Rows float64 [3, 500] of many scales, their counts, and parameters [3 * 40, 1] with their rows."""
    rng = np.random.default_rng(seed)
    counts = np.array([60, 333, 500])
    x = np.exp(spread * rng.normal(size=(3, 500)))
    if negative:
        x *= np.where(rng.random(x.shape) < 0.5, -1, 1)
    x[np.arange(500) >= counts[:, None]] = 0
    row = np.repeat(np.arange(3), 40)
    b, w = 4 * rng.normal(size=(120, 1)), 3 * rng.normal(size=(120, 1)) / np.abs(x).max(1)[row, None]
    w *= np.exp(rng.normal(size=w.shape))
    return x, counts, row, b, w


def sums(x, b, w):
    """Sums [5, P] of mu, s, mu x, s x and s x^2."""
    eta = b + w * x
    mu, s = expit(eta), expit(eta) * expit(-eta)
    return np.stack([term.sum(1) for term in (mu, s, mu * x, s * x, s * x * x)])


def rounded_and_bound(precision, spoil=1.0):
    """Error of the float32 sums of a kernel, times `spoil`, and its bound, [5, P]."""
    x, _, row, b, w = (torch.from_numpy(part) for part in events(0, negative=True, spread=1.0))
    x = x.float().double()
    kernel = EagerKernel(PRECISIONS[precision], Counts())
    found = kernel(Bucket(0, 3, x.float()), row, b.float(), w.float(), "hessian")
    m0, m1, a0, a1, a2 = (spoil * part.double() for part in found)
    reach, positive = x.abs().amax(1)[row, None], torch.zeros(120, 1, dtype=torch.bool)
    of = EventSums(m0=m0, m1=m1, a0=a0, a1=a1, a2=a2)
    off = SumErrors.of_rounding(of, b, w, reach, torch.full_like(b, 500), positive)
    exact = sums(x[row].numpy(), b.numpy(), w.numpy())
    error = np.abs(torch.cat([m0, a0, m1, a1, a2], 1).T.numpy() - exact)
    return error, torch.cat([off.zeroth, off.zeroth, off.first, off.first, off.second], 1).T.numpy()


@pytest.mark.parametrize("precision", ["f32", "block"])
def test_float32_sums_are_within_their_bound(precision):
    error, bound = rounded_and_bound(precision)
    assert (error <= bound).all()


def test_sums_off_by_a_thousandth_break_the_bound():
    error, bound = rounded_and_bound("f32", spoil=1.001)
    assert (error > bound).any()


@pytest.mark.parametrize("pairs", [2, BLOCK_EVENTS + 1])
def test_long_sums_join_short_ones_of_float32_in_float64(pairs):
    # Whole numbers whose sums over 128 events float32 can hold, and over all of them it cannot.
    events = torch.randint(2**16, (1, pairs, 2**12), generator=torch.Generator().manual_seed(1)).float() + 1
    events[..., 0] += 1 - events.double().sum(-1) % 2
    right = events.double().sum(-1)
    assert BLOCK_EVENTS % WIDE_LANE == 0 and bucket_width(BLOCK_EVENTS + 1) % WIDE_LANE == 0
    assert torch.equal(reduce_blocks(events, torch.float64), right)
    assert not torch.equal(events.sum(-1).double(), right)
