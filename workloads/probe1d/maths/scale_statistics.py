"""The statistic that measures w: root mean square for the stop test, and others to try in the step metric."""

from __future__ import annotations

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import SCALE_FLOOR, Csr

PIECE = 1_000_000


def rms_by_pass(x: Csr, counts: Counts) -> tuple[Tensor, Tensor]:
    """Number and sum of squares of each latent's non-zeros, by a pass in pieces: float32 [L] each."""
    number = torch.zeros(x.latents, dtype=torch.float32, device=x.values.device)
    squares = torch.zeros_like(number)
    for columns, values in zip(x.indices.split(PIECE), x.values.float().split(PIECE), strict=True):
        number.index_add_(0, columns, torch.ones_like(values))
        squares.index_add_(0, columns, values * values)
    counts.add("qx_passes")
    return number, squares


def metric_scale(x: Csr, level: str, count: Tensor, rms: Tensor, counts: Counts) -> Tensor:
    """The scale of a level of `qx_stat`, float64 [L]; 1 for a dead latent, never below SCALE_FLOOR.

    `rms`, the root mean square [L], is there already; the others are passes of their own.
    """
    if level in ("rms", "rms_free"):
        return rms
    counts.add("qx_passes")
    size = x.values.double().abs()
    if level == "meanabs":
        found = torch.bincount(x.indices, weights=size, minlength=x.latents) / count.clamp(min=1)
    elif level == "max":
        found = torch.zeros_like(rms).scatter_reduce(0, x.indices, size, "amax")
    else:
        found = _quantile(x, size, count, 0.95)
    found = torch.where(count > 0, found.clamp(min=SCALE_FLOOR), 1.0)
    counts.add("metric_changed", counts.read(((found - rms).abs() > 1e-6 * rms).sum()))
    return found


def _quantile(x: Csr, size: Tensor, count: Tensor, share: float) -> Tensor:
    """The value below which `share` of a latent's non-zeros lie, float64 [L]."""
    order = torch.argsort(size)
    order = order[torch.argsort(x.indices[order], stable=True)]
    first = count.long().cumsum(0) - count.long()
    position = first + ((count - 1).clamp(min=0) * share).round().long()
    return size[order][position.clamp(max=max(x.nnz - 1, 0))] if x.nnz else torch.zeros_like(count)
