"""How well probes rank and tell rows that they were not fitted to: AUROC and F1 of every pair."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.data.problem import Csr, label_sums
from perfsweep.workloads.probe1d.maths.job import CountConfusion
from perfsweep.workloads.probe1d.maths.prepared_rows import PreparedRows


@dataclass(frozen=True)
class Scores:
    """Of every pair, float64 [L, C]; `auroc` is NaN where the rows have one label, `f1` then 0."""

    auroc: Tensor
    f1: Tensor


def scores(rows: PreparedRows, count: CountConfusion, b: Tensor, w: Tensor) -> Scores:
    """Scores on `rows` of the probes b, w float64 [L, C], latents in their original order."""
    positives = rows.constants.positives.long()
    counted = count(torch.arange(b.shape[1], device=b.device), positives, b, w)
    wrong = counted.fp + counted.fn
    return Scores(auroc(rows, w), 2 * counted.tp / (2 * counted.tp + wrong).clamp(min=1).double())


def auroc(rows: PreparedRows, w: Tensor) -> Tensor:
    """Share of pairs of a positive and a negative row that the probe ranks rightly, ties half, [L, C].

    A probe ranks rows as its latent does, or the other way round: the rank sum of positive rows decides
    (Mann and Whitney 1947).
    """
    x, positives = rows.x, rows.constants.positives
    ranks, silent = midranks(x)
    hits, rank_sum = label_sums(replace(x, values=ranks), rows.labels, rows.grid)
    rank_sum = rank_sum + (positives - hits) * silent[:, None]
    rising = (rank_sum - positives * (positives + 1) / 2) / (positives * (x.rows - positives))
    # Through 1/2: a probe that ignores its latent ranks nothing.
    return 0.5 + torch.sign(w) * (rising - 0.5)


def midranks(x: Csr) -> tuple[Tensor, Tensor]:
    """Rank of each event among all rows of its latent, float64 [nnz], and of silent rows [L]; ties share."""
    values, by_value = torch.sort(x.values)
    latent, by_latent = torch.sort(x.indices[by_value], stable=True)
    values, order = values[by_latent], by_value[by_latent]
    fresh = torch.ones_like(latent, dtype=torch.bool)
    fresh[1:] = (latent[1:] != latent[:-1]) | (values[1:] != values[:-1])
    size = torch.diff(fresh.nonzero().squeeze(1), append=latent.new_tensor([latent.numel()]))
    first = torch.cumsum(size, 0) - size
    count = torch.bincount(latent, minlength=x.latents)
    below = torch.bincount(latent[values < 0], minlength=x.latents)
    rank = (first + (size.double() + 1) / 2).repeat_interleave(size) - (count.cumsum(0) - count)[latent]
    rank += torch.where(values > 0, x.rows - count[latent], 0)
    return torch.empty_like(rank).index_copy_(0, order, rank), below + (x.rows - count + 1).double() / 2
