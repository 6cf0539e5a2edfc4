"""Sums over events: what torch.compile is given adds up as the eager kernel does, in every precision."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.maths.buckets import Bucket, bucket_width
from perfsweep.workloads.probe1d.maths.event_sums import EagerKernel, _flat_sums
from perfsweep.workloads.probe1d.maths.precision import BLOCK_EVENTS, PRECISIONS

ROWS, PAIRS = 3, 5


@pytest.mark.parametrize("longest", [BLOCK_EVENTS // 2, BLOCK_EVENTS, 3 * BLOCK_EVENTS])
@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=lambda one: one.name)
def test_pairs_in_one_list_have_the_sums_that_pieces_have(precision, longest: int) -> None:
    generator = torch.Generator().manual_seed(0)
    width = bucket_width(longest)
    x = torch.randn(ROWS, width, generator=generator, dtype=torch.float64)
    row = torch.randint(0, ROWS, (PAIRS,), generator=generator)
    b, w = torch.randn(2, PAIRS, generator=generator, dtype=torch.float64).to(precision.sums)
    eager = EagerKernel(precision, Counts())(Bucket(0, ROWS, x), row, b[:, None], w[:, None], "loss")
    flat = _flat_sums("loss", precision)(x, row, b, w)
    assert all(torch.equal(one[:, 0], other) for one, other in zip(eager, flat, strict=True))
