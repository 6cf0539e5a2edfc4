"""What nodes miss stays within its bound, so a pair certified on nodes is certified on its events."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit

from workloads.probe1d.maths import compress
from workloads.probe1d.maths.buckets import Bucket, Layout
from workloads.probe1d.maths.quadrature_error import SumErrors

BINS = 8
ROUNDING = 1e-10


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


def sums(x, weight, b, w):
    """Sums [5, P] of mu, s, mu x, s x and s x^2."""
    eta = b + w * x
    mu, s = expit(eta), expit(eta) * expit(-eta)
    return np.stack([(weight * term).sum(1) for term in (mu, s, mu * x, s * x, s * x * x)])


def missed_and_bound(seed, negative, spread):
    x, counts, row, b, w = events(seed, negative, spread)
    number = torch.from_numpy(counts)
    exact = Bucket(0, 3, torch.from_numpy(x))
    layout = Layout(torch.arange(3), number.double(), (exact,), 0)
    nodes, bins = compress.compress_layout(layout, number, BINS)
    (bucket,) = nodes.buckets
    assert bucket.weight is not None
    whole = sums(x[row], np.arange(500) < counts[row, None], b, w)
    few = sums(bucket.x.numpy()[row], bucket.weight.numpy()[row], b, w)
    found = SumErrors.of(bins, torch.from_numpy(row), torch.from_numpy(b), torch.from_numpy(w))
    bound = [part.squeeze(1).numpy() for part in (found.zeroth, found.first, found.second)]
    return np.abs(whole - few), np.stack([bound[number] for number in (0, 0, 1, 1, 2)]), np.abs(whole)


CASES = [(seed, negative, spread) for seed in range(3) for negative in (False, True) for spread in (0.5, 2.0)]


@pytest.mark.parametrize("case", CASES)
def test_nodes_miss_no_more_of_any_sum_than_their_bound(case):
    missed, bound, size = missed_and_bound(*case)
    assert (missed <= bound + ROUNDING * (1 + size)).all()
    # A bound that promises nothing would certify nothing.
    assert np.median(bound[0]) < 0.1


def test_nodes_that_lose_the_third_moment_break_the_bound(monkeypatch):
    right = compress.two_point_rule
    monkeypatch.setattr(compress, "two_point_rule", lambda mean, s2, s3, size: right(mean, s2, 0 * s3, size))
    assert any((missed > bound).any() for missed, bound, _ in (missed_and_bound(*case) for case in CASES))


def test_most_pairs_are_certified_on_nodes_and_all_hold_on_their_events(solve):
    levels = {"solver": "newton", "compress": 16, "slab_size": "all", "precision": "f64"}
    certified = solve(levels, data="test", metrics=False)
    counters = certified.counters()
    assert counters["pairs_certified_on_nodes"] > 0.5 * certified.progress()
    assert certified.evidence().numbers["max_gradient"] <= 1.01e-6
