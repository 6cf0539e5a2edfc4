"""Arithmetic of hashes: compiled code does without overflow what eager code does by wrapping around."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from perfsweep.workloads.prover.data.hashing import FIRST, GOLDEN, SECOND, wrapping_product, wrapping_sum

WORDS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(WORDS, min_size=1, max_size=20), st.one_of(st.sampled_from([GOLDEN, FIRST, SECOND]), WORDS))
def test_sums_and_products_wrap_around_at_64_bits(xs: list[int], y: int) -> None:
    x = torch.tensor(xs)
    for found, plain in ((wrapping_sum(x, y), lambda v: v + y), (wrapping_product(x, y), lambda v: v * y)):
        assert found.tolist() == [(plain(v) + 2**63) % 2**64 - 2**63 for v in xs]
