"""Certified compression: the events of a bin become two Gauss nodes that keep its first four moments.

Only the smooth sums over events are approximated; counts and label sums stay exact. What is solved on nodes
is certified on all events afterwards, so compression can cost time but not correctness.

Two-point Gauss quadrature: with central moments s2, s3 of a bin of c events around its mean m, the nodes are
m + t for the roots t1 < t2 of t^2 - (s3/s2) t - s2 = 0, with weights c t2/(t2 - t1) and -c t1/(t2 - t1).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from workloads.probe1d.maths.buckets import Bucket, Layout, bucket_width

KEEP_EVENTS_PER_BIN = 3
"""A latent with at most this many events per bin would gain nothing: its nodes would be as many."""
FLAT = 1e-20


def compress_layout(layout: Layout, counts: Tensor, bins: int) -> Layout:
    """The same ranks, at most 2 `bins` weighted nodes each; `counts` [L] of non-zeros are by rank.

    Padding slots carry weight 0 here, so the zero group is the true one: `slots` are the counts.
    """
    limit = KEEP_EVENTS_PER_BIN * bins
    # Ranks ascend by count, so the compressed latents are the last ones.
    first = int((counts <= limit).sum())
    buckets = []
    for bucket in layout.buckets:
        if bucket.first < first:
            stop = min(bucket.last, first)
            buckets.append(_with_unit_weights(bucket.first, stop, bucket.x[: stop - bucket.first], counts))
        if bucket.last > first:
            start = max(bucket.first, first)
            x, weight = gauss_nodes(bucket.x[start - bucket.first :], counts[start : bucket.last], bins)
            buckets.append(Bucket(start, bucket.last, x, weight))
    return Layout(layout.order, counts.double(), tuple(merge_nodes(buckets, first)), layout.dead)


def _with_unit_weights(first: int, last: int, x: Tensor, counts: Tensor) -> Bucket:
    slot = torch.arange(x.shape[1], device=x.device)
    return Bucket(first, last, x.double(), (slot < counts[first:last, None]).double())


def merge_nodes(buckets: list[Bucket], first: int) -> list[Bucket]:
    """Join the compressed buckets (ranks from `first`): of one width, one launch does for all."""
    plain = [bucket for bucket in buckets if bucket.first < first]
    nodes = [bucket for bucket in buckets if bucket.first >= first]
    if not nodes:
        return plain
    weights = [bucket.weight for bucket in nodes if bucket.weight is not None]
    joined = Bucket(
        nodes[0].first, nodes[-1].last, torch.cat([bucket.x for bucket in nodes]), torch.cat(weights)
    )
    return [*plain, joined]


def sort_rows(x: Tensor, counts: Tensor) -> Tensor:
    """Rows in ascending order with their padding moved to the end as +inf."""
    slot = torch.arange(x.shape[1], device=x.device)
    x = torch.where(slot < counts[:, None], x, torch.inf)
    if x.is_cuda:
        return torch.sort(x, dim=1).values
    # numpy's vectorised sort is several times faster than torch's on CPU.
    return torch.from_numpy(np.sort(x.numpy(), axis=1))


def bin_edges(x: Tensor, counts: Tensor, bins: int) -> Tensor:
    """First position of each bin in sorted rows, plus the end: int64 [l, bins + 1].

    Half the edges are quantiles; the others are log-spaced, or quantiles where a value is not positive.
    """
    share = torch.arange(bins + 1, device=x.device, dtype=torch.float64) / bins
    quantiles = (counts[:, None] * share).round().long()
    half = bins // 2
    # Quantiles alone would leave the few large values in one wide bin, and a logit moves by w x.
    log_share = torch.arange(1, bins - half + 1, device=x.device, dtype=torch.float64) / (bins - half + 1)
    low, high = x[:, :1].double(), x.gather(1, (counts[:, None] - 1).long()).double()
    positive = low > 0
    ratio = torch.where(positive, high / torch.where(positive, low, 1.0), 1.0)
    values = torch.where(positive, low, 1.0) * ratio**log_share
    by_log = torch.searchsorted(x.contiguous(), values.to(x.dtype).contiguous())
    steps = torch.arange(half + 1, device=x.device, dtype=torch.float64)
    by_count = (counts[:, None] * steps / max(half, 1)).round().long()
    mixed = torch.sort(torch.cat([by_count, by_log], dim=1), dim=1).values
    return torch.where(positive, mixed, quantiles)


def gauss_nodes(x: Tensor, counts: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights [l, 2 bins rounded up to a lane], float64, of padded rows x [l, K]."""
    rows = sort_rows(x, counts)
    edges = bin_edges(rows, counts, bins)
    slot = torch.arange(x.shape[1], device=x.device)
    real = torch.where(slot < counts[:, None], rows, 0.0).double()
    # Centred power sums: differences of raw third powers would cancel in narrow bins far from zero.
    centre = real.sum(1, keepdim=True) / counts[:, None]
    shifted = torch.where(slot < counts[:, None], real - centre, 0.0)
    start, stop = edges[:, :-1], edges[:, 1:]
    size = (stop - start).double()
    low, high, weight_low, weight_high = two_point_rule(*_moments(shifted, start, stop), size)
    # One or two events are their own nodes, exactly.
    small = size <= 2
    first = torch.where(small, _pick(shifted, start), low)
    second = torch.where(small, _pick(shifted, start + 1), high)
    w_first = torch.where(small, (size >= 1).double(), weight_low)
    w_second = torch.where(small, (size >= 2).double(), weight_high)
    nodes = torch.cat([first, second], 1) + centre
    weight = torch.cat([w_first, w_second], 1)
    return _filled_up(torch.where(weight > 0, nodes, 0.0)), _filled_up(weight)


def _filled_up(nodes: Tensor) -> Tensor:
    """Zeros behind the nodes up to a width that buckets can have."""
    return torch.nn.functional.pad(nodes, (0, bucket_width(nodes.shape[1]) - nodes.shape[1]))


def two_point_rule(
    mean: Tensor, s2: Tensor, s3: Tensor, size: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Low and high node and their weights, from mean and central moments per event of `size` events."""
    # Gauss quadrature: the roots of t^2 - (s3/s2) t - s2 and their weights keep moments 0 to 3 exactly.
    flat = s2 < FLAT
    skew = torch.where(flat, 0.0, s3 / torch.where(flat, 1.0, s2))
    spread = torch.sqrt(skew * skew + 4 * torch.where(flat, 1.0, s2))
    t1, t2 = (skew - spread) / 2, (skew + spread) / 2
    low = torch.where(flat, mean, mean + t1)
    high = torch.where(flat, mean, mean + t2)
    weight_low = torch.where(flat, size, size * t2 / spread)
    return low, high, weight_low, size - weight_low


def _moments(shifted: Tensor, start: Tensor, stop: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and second and third central moment per event of values[start:stop], [l, bins] each."""
    p1, p2, p3 = (_range_sums(shifted**power, start, stop) for power in (1, 2, 3))
    # Empty bins divide by one and end with weight zero.
    c = (stop - start).double().clamp(min=1)
    mean = p1 / c
    # A difference of prefix sums can fall below zero by rounding.
    s2 = (p2 / c - mean**2).clamp(min=0)
    return mean, s2, p3 / c - 3 * mean * p2 / c + 2 * mean**3


def _range_sums(values: Tensor, start: Tensor, stop: Tensor) -> Tensor:
    total = torch.nn.functional.pad(values.cumsum(1), (1, 0))
    return total.gather(1, stop) - total.gather(1, start)


def _pick(values: Tensor, position: Tensor) -> Tensor:
    return values.gather(1, position.clamp(max=values.shape[1] - 1))
