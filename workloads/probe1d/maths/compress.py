"""Certified compression: the events of a bin become two Gauss nodes that keep its first four moments.

Only the smooth sums over events are approximated; counts and label sums stay exact. What is solved on nodes
is certified by a bound of what these miss, or on all events, so compression cannot cost correctness.

Two-point Gauss quadrature: with central moments s2, s3 of a bin of c events around its mean m, the nodes are
m + t for the roots t1 < t2 of t^2 - (s3/s2) t - s2 = 0, with weights c t2/(t2 - t1) and -c t1/(t2 - t1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.maths.buckets import Bucket, Layout, bucket_width, sort_rows

KEEP_EVENTS_PER_BIN = 3
"""A latent with at most this many events per bin would gain nothing: its nodes would be as many."""
FLAT = 1e-20
"""Variance of a bin, in units of half its width, below which one node stands for it."""
GAUSS_LOAD = 1 / 96
"""In units of c h^4, for c events over an interval of half width h. The two nodes' polynomial of degree two
has the least mean square over the events, below the (h^2 / 2)^2 that Chebyshev's reaches at most; by 4!."""


@dataclass(frozen=True)
class Bins:
    """The bins of the compressed ranks, those from `first` on; float64 [l, bins] each, zero where exact.

    `mid` and `half` span a bin's events; `load` is what two Gauss nodes miss at most of the integral of a
    function whose fourth derivative is one: see `sum_errors`.
    """

    first: int
    mid: Tensor
    half: Tensor
    load: Tensor


def compress_layout(layout: Layout, counts: Tensor, bins: int) -> tuple[Layout, Bins]:
    """The same ranks, at most 2 `bins` weighted nodes each; `counts` [L] of non-zeros are by rank.

    Padding slots carry weight 0 here, so the zero group is the true one: `slots` are the counts.
    """
    limit = KEEP_EVENTS_PER_BIN * bins
    # Ranks ascend by count, so the compressed latents are the last ones.
    first = int((counts <= limit).sum())
    buckets, parts = [], []
    for bucket in layout.buckets:
        if bucket.first < first:
            stop = min(bucket.last, first)
            buckets.append(_with_unit_weights(bucket.first, stop, bucket.x[: stop - bucket.first], counts))
        if bucket.last > first:
            start = max(bucket.first, first)
            x, weight, *part = gauss_nodes(
                bucket.x[start - bucket.first :], counts[start : bucket.last], bins
            )
            buckets.append(Bucket(start, bucket.last, x, weight))
            parts.append(part)
    empty = counts.new_zeros((0, bins), dtype=torch.float64)
    spans = (torch.cat(part) for part in zip(*parts, strict=True)) if parts else (empty, empty, empty)
    nodes = Layout(layout.order, counts.double(), tuple(merge_nodes(buckets, first)), layout.dead)
    return nodes, Bins(first, *spans)


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


def gauss_nodes(x: Tensor, counts: Tensor, bins: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Nodes and weights [l, 2 bins rounded up to a lane] of padded rows x [l, K]; `Bins` of them; float64."""
    rows = sort_rows(x, counts)
    edges = bin_edges(rows, counts, bins)
    start, size = edges[:, :-1], edges.diff()
    low, high = _pick(rows, start).double(), _pick(rows, edges[:, 1:] - 1).double()
    # One or two events are their own nodes, exactly.
    small = size <= 2
    mid = torch.where(size > 0, (low + high) / 2, 0.0)
    half = torch.where(size > 0, (high - low) / 2, 0.0)
    unit = torch.where(half > 0, half, 1.0)
    real = torch.arange(x.shape[1], device=x.device) < counts[:, None]
    moments = _moments(rows[real].double(), size, mid, unit)
    first, second, weight_first, weight_second = two_point_rule(*moments, size.double())
    first = torch.where(small, -half / unit, first) * unit + mid
    second = torch.where(small, half / unit, second) * unit + mid
    weight_first = torch.where(small, (size >= 1).double(), weight_first)
    weight_second = torch.where(small, (size >= 2).double(), weight_second)
    nodes, weight = torch.cat([first, second], 1), torch.cat([weight_first, weight_second], 1)
    load = torch.where(small, 0.0, GAUSS_LOAD * size * half**4)
    return _filled_up(torch.where(weight > 0, nodes, 0.0)), _filled_up(weight), mid, half, load


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


def _moments(events: Tensor, size: Tensor, mid: Tensor, unit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and second and third central moment per event of (x - mid) / unit in each bin, [l, bins] each.

    `events` are the sorted events of all rows one after the other. In its own units a bin loses no digits,
    however far from zero it lies and however narrow it is beside others.
    """
    lengths = size.flatten()
    shifted = (events - mid.flatten().repeat_interleave(lengths)) / unit.flatten().repeat_interleave(lengths)
    # Empty bins divide by one and end with weight zero.
    c = size.double().clamp(min=1)
    powers = (shifted, shifted * shifted, shifted * shifted * shifted)
    p1, p2, p3 = (
        torch.segment_reduce(power, "sum", lengths=lengths).nan_to_num(0.0).view(size.shape) / c
        for power in powers
    )
    s2 = (p2 - p1 * p1).clamp(min=0)
    return p1, s2, p3 - 3 * p1 * p2 + 2 * p1**3


def _pick(values: Tensor, position: Tensor) -> Tensor:
    return values.gather(1, position.clamp(0, values.shape[1] - 1))
