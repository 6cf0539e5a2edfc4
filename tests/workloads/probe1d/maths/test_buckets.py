"""Widths of padded rows, which latents share one, and what stands in them."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.probe1d.data.problem import Csr, Labels, constants
from perfsweep.workloads.probe1d.maths.buckets import (
    bucket_edges,
    bucket_width,
    build_layout,
    pad_rows,
    reorder,
    to_csc,
)


@pytest.mark.parametrize(
    ("longest", "width"), [(1, 16), (16, 16), (17, 32), (512, 512), (513, 640), (640, 640), (641, 768)]
)
def test_widths_are_whole_lanes_and_whole_blocks_beyond_512(longest: int, width: int) -> None:
    assert bucket_width(longest) == width


@pytest.mark.parametrize(
    ("counts", "edges"),
    [
        ([], []),
        ([1, 5, 16], [3]),  # one lane holds them all
        ([13, 14, 17], [1, 3]),  # 14 and 17 within a quarter; 13 is one too few
        ([80, 81, 100], [1, 3]),
        ([16, 17, 32], [1, 3]),  # or within a lane of 32, and of 64
        ([48, 49, 64], [1, 3]),
        ([10, 20, 40, 80], [1, 2, 3, 4]),
    ],
)
def test_a_bucket_pads_by_a_quarter_or_a_lane(counts: list[int], edges: list[int]) -> None:
    assert bucket_edges(counts) == edges


def test_rows_are_padded_with_zeros() -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    padded = pad_rows(values, torch.tensor([3, 0, 5]), torch.tensor([2, 3, 0]), 4)
    assert padded.tolist() == [[4, 5, 0, 0], [1, 2, 3, 0], [0, 0, 0, 0]]


X = Csr(
    torch.tensor([0, 2, 4, 7]),
    torch.tensor([0, 2, 2, 3, 0, 2, 3]),
    torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]),
    5,
)


def test_activations_by_latent_stand_in_the_order_of_rows() -> None:
    csc = to_csc(X, with_rows=True)
    assert csc.indptr.tolist() == [0, 2, 2, 5, 7, 7]
    assert csc.values.tolist() == [1, 5, 2, 3, 6, 4, 7]
    assert csc.rows is not None and csc.rows.tolist() == [0, 2, 0, 1, 2, 1, 2]
    assert to_csc(X).rows is None


def test_a_layout_ranks_latents_by_their_events() -> None:
    layout = build_layout(to_csc(X), torch.float64)
    assert layout.order.tolist() == [1, 4, 0, 3, 2]
    assert layout.dead == 2
    assert layout.slots.tolist() == [0, 0, 16, 16, 16]
    (bucket,) = layout.buckets
    assert (bucket.first, bucket.last, bucket.width, layout.padded) == (2, 5, 16, 48)
    assert bucket.x.dtype == torch.float64
    assert bucket.x[:, :4].tolist() == [[1, 5, 0, 0], [4, 7, 0, 0], [2, 3, 6, 0]]


def test_constants_follow_the_ranks_where_they_are_of_latents() -> None:
    made = constants(X, Labels(2, ids=torch.tensor([0, 1, 1])), torch.arange(2))
    order = torch.tensor([1, 4, 0, 3, 2])
    moved = reorder(made, order)
    for name in ("count", "sum_x", "deviation", "hits", "hit_sum", "scale", "ridge_w"):
        assert torch.equal(getattr(moved, name), getattr(made, name)[order]), name
    assert moved.positives is made.positives
    assert moved.prior is made.prior
    assert moved.rows == 3
