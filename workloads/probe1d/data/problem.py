"""The problem every solver works on: sparse activations, labels, and the sums that never change.

Dimensions: N rows, L latents, C classes of the requested grid, nnz stored activations.

For each pair (l, c), with softplus(e) = log(1 + exp e), the mean loss is

    L(b, w) = (1/N) sum_j [softplus(b + w x_j) - y_j (b + w x_j)]

and label sums enter it only as constants. Two objectives add a penalty to it, see `Penalty`:

    report:  L + (ridge/2) (w^2 + (b - prior)^2)    in the units of x, that of the solvers naive and late
    scaled:  L + (ridge/2) (w spread)^2             in units of the latent, that of every certified pair

`spread` is the latent's standard deviation over all rows, silent ones included: the second is the ridge on
the slope of (x - mean) / spread, and leaves the intercept free. Both are strictly convex and have one
minimiser; but for a class of no row, or of all, which ends at its clipped prior.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

PRIOR_CLIP = 1e-8
SCALE_FLOOR = 1e-6
EQUAL = 1e-10
"""Spread over the size of values below which they count as equal: eta = b + w x cancels in float64."""
PIECE_EVENTS = 2**27
"""Events whose constants are summed at once."""


@dataclass(frozen=True)
class Csr:
    """By row: `indptr` int64 [N+1], `indices` int64 [nnz], `values` [nnz]; no zeros, no duplicates."""

    indptr: Tensor
    indices: Tensor
    values: Tensor
    latents: int

    @property
    def rows(self) -> int:
        """N."""
        return self.indptr.numel() - 1

    @property
    def nnz(self) -> int:
        """Number of stored activations."""
        return self.values.numel()

    def row_index(self, dtype: torch.dtype = torch.int64) -> Tensor:
        """The row of every stored activation, [nnz]."""
        lengths = self.indptr.diff()
        rows = torch.arange(self.rows, dtype=dtype, device=self.indptr.device)
        return torch.repeat_interleave(rows, lengths, output_size=self.nnz)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Csr:
        """The same activations on `device`, values in `dtype`."""
        return Csr(
            self.indptr.to(device), self.indices.to(device), self.values.to(device, dtype), self.latents
        )


@dataclass(frozen=True)
class Labels:
    """One class per row (`ids` [N]) or any number of them (`multi` bool [N, C]); exactly one is set."""

    classes: int
    ids: Tensor | None = None
    multi: Tensor | None = None

    def dense(self, grid: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Indicator matrix [N, len(grid)] of the classes in `grid`."""
        if self.multi is not None:
            return self.multi.index_select(1, grid).to(dtype)
        assert self.ids is not None
        return (self.ids.long().unsqueeze(1) == grid.unsqueeze(0)).to(dtype)

    def positions(self, grid: Tensor) -> Tensor:
        """Each row's class as a position in `grid`, -1 if not asked for, int64 [N]; one-hot labels only."""
        assert self.ids is not None
        where = torch.full((self.classes,), -1, dtype=torch.int64, device=grid.device)
        where[grid] = torch.arange(grid.numel(), device=grid.device)
        return where[self.ids.long()]

    def at(self, rows: Tensor | slice) -> Labels:
        """The labels of some rows, int64 numbers or a slice of them."""
        ids = None if self.ids is None else self.ids[rows]
        return Labels(self.classes, ids, None if self.multi is None else self.multi[rows])

    def to(self, device: torch.device | str) -> Labels:
        """The same labels on `device`."""
        ids = None if self.ids is None else self.ids.to(device)
        return Labels(self.classes, ids, None if self.multi is None else self.multi.to(device))


@dataclass(frozen=True)
class ProbeData:
    """What a job is given: training activations and labels, held-out ones where the source has them."""

    name: str
    x: Csr
    labels: Labels
    x_val: Csr | None = None
    labels_val: Labels | None = None


@dataclass(frozen=True)
class Penalty:
    """What an objective adds to the loss: `scaled` or in the report's form."""

    ridge: float
    scaled: bool = False

    def on_slope(self, rows: int, count: Tensor, sum_x: Tensor, deviation: Tensor) -> Tensor:
        """What w^2 / 2 is multiplied with, float64 [L], from constants of the latents."""
        if not self.scaled:
            return torch.full_like(count, self.ridge)
        mean, share = sum_x / count.clamp(min=1), count / rows
        variance = share * (deviation * deviation + (1 - share) * mean * mean)
        # One value in every row has no spread to be measured in: its own size will do.
        variance = torch.where(variance > (EQUAL * mean) ** 2, variance, mean * mean)
        return self.ridge * torch.where(count > 0, variance, 1.0)

    @property
    def on_intercept(self) -> float:
        """What (b - prior)^2 / 2 is multiplied with."""
        return 0.0 if self.scaled else self.ridge


REPORT = Penalty(1e-8)
SCALED = Penalty(1e-12, scaled=True)
"""Small enough to cost no loss worth mention: 1e-8 held one separable pair in a thousand."""


@dataclass(frozen=True)
class Constants:
    """Sums over stored activations that no pass needs to repeat; all float64.

    Attributes
    ----------
    count, sum_x, deviation : [L] number of non-zeros of each latent, their sum and standard deviation
    positives, prior : [C] P, number of positive rows, and the logit of its clipped share
    hits, hit_away : [L, C] Q, sum of y over non-zeros, and that of y*(x - mean)
    scale : [L] root mean square of the non-zeros, the unit in which w is measured
    ridge_w, ridge_b : [L] and one number, what the objective multiplies w^2 / 2 and (b - prior)^2 / 2 with
    """

    rows: int
    count: Tensor
    sum_x: Tensor
    deviation: Tensor
    positives: Tensor
    prior: Tensor
    hits: Tensor
    hit_away: Tensor
    scale: Tensor
    ridge_w: Tensor
    ridge_b: float

    @property
    def mean(self) -> Tensor:
        """Mean of each latent's non-zeros, [L]."""
        return self.sum_x / self.count.clamp(min=1)

    @property
    def hit_sum(self) -> Tensor:
        """S, sum of x*y over non-zeros, [L, C]."""
        return self.hit_away + self.mean[:, None] * self.hits


def prior_logit(positives: Tensor, rows: int) -> Tensor:
    """Logit of the clipped share of positive rows, float64 [C]."""
    share = (positives.double() / rows).clamp(PRIOR_CLIP, 1 - PRIOR_CLIP)
    return torch.log(share) - torch.log1p(-share)


def rms_scale(count: Tensor, sum_xx: Tensor) -> Tensor:
    """Root mean square of a latent's non-zeros, 1 for a dead latent, never below SCALE_FLOOR, float64 [L]."""
    rms = torch.sqrt(sum_xx.double() / count.double().clamp(min=1)).clamp(min=SCALE_FLOOR)
    return torch.where(count > 0, rms, torch.ones_like(rms))


def class_totals(labels: Labels, grid: Tensor) -> Tensor:
    """P: positive rows of each class of the grid, float64 [C]."""
    if labels.multi is not None:
        return labels.multi.index_select(1, grid).sum(0).double()
    assert labels.ids is not None
    return torch.bincount(labels.ids.long(), minlength=labels.classes)[grid].double()


def row_pieces(x: Csr, labels: Labels) -> Iterator[tuple[Csr, Labels]]:
    """Runs of rows with about PIECE_EVENTS events: float64 copies of 10^9 values at once would fill a GPU."""
    marks = torch.tensor(range(PIECE_EVENTS, x.nnz, PIECE_EVENTS), dtype=torch.int64, device=x.indptr.device)
    inner = torch.searchsorted(x.indptr, marks).tolist()
    edges = [0, *dict.fromkeys(row for row in inner if 0 < row < x.rows), x.rows]
    for first, last in pairwise(edges):
        start, stop = int(x.indptr[first]), int(x.indptr[last])
        part = Csr(x.indptr[first : last + 1] - start, x.indices[start:stop], x.values[start:stop], x.latents)
        yield part, labels.at(slice(first, last))


def constants(x: Csr, labels: Labels, grid: Tensor, penalty: Penalty = REPORT) -> Constants:
    """All constant sums, O(nnz); the only place where the label-free paths look at a label."""
    return _constants(x, labels, grid, penalty, lambda part, own: label_sums(part, own, grid))


def labelled_constants(x: Csr, labels: Labels, grid: Tensor, penalty: Penalty = REPORT) -> Constants:
    """Constants of a path that sums labels on every pass: label sums stay zero, and nothing reads them."""
    empty = torch.zeros(x.latents, grid.numel(), dtype=torch.float64, device=x.values.device)
    return _constants(x, labels, grid, penalty, lambda part, own: (empty, empty))


def _constants(
    x: Csr,
    labels: Labels,
    grid: Tensor,
    penalty: Penalty,
    sum_labels: Callable[[Csr, Labels], tuple[Tensor, Tensor]],
) -> Constants:
    count, sum_x, sum_xx = _added(power_sums(part) for part, _ in row_pieces(x, labels))
    # Of values far larger than their spread, squares and label sums cancel unless they are centred first.
    mean = sum_x / count.clamp(min=1)
    parts = (
        (replace(part, values=part.values.double() - mean[part.indices]), own)
        for part, own in row_pieces(x, labels)
    )
    squares, hits, hit_away = _added((power_sums(part)[2], *sum_labels(part, own)) for part, own in parts)
    deviation = (squares / count.clamp(min=1)).sqrt()
    totals = class_totals(labels, grid)
    return Constants(
        *(x.rows, count, sum_x, deviation, totals, prior_logit(totals, x.rows), hits, hit_away),
        *(rms_scale(count, sum_xx), penalty.on_slope(x.rows, count, sum_x, deviation), penalty.on_intercept),
    )


def _added(parts: Iterable[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(reduce(torch.add, terms) for terms in zip(*parts, strict=True))


def power_sums(x: Csr) -> tuple[Tensor, Tensor, Tensor]:
    """Number, sum and sum of squares of each latent's non-zeros, float64 [L]."""
    values = x.values.double()
    count = torch.bincount(x.indices, minlength=x.latents).double()
    sum_x = torch.bincount(x.indices, weights=values, minlength=x.latents)
    return count, sum_x, torch.bincount(x.indices, weights=values * values, minlength=x.latents)


def label_sums(x: Csr, labels: Labels, grid: Tensor) -> tuple[Tensor, Tensor]:
    """Q and S, float64 [L, C]: a bincount for one class per row, sparse products otherwise."""
    if labels.multi is not None:
        return _label_sums_multi(x, labels.dense(grid, torch.float64))
    size = x.latents * grid.numel()
    position = labels.positions(grid)
    values = x.values.double()
    key = x.indices * grid.numel()
    key += position.repeat_interleave(x.indptr.diff(), output_size=x.nnz)
    if grid.numel() < labels.classes:  # rows of classes that are not asked for
        wanted = (position >= 0).repeat_interleave(x.indptr.diff(), output_size=x.nnz)
        key, values = key[wanted], values[wanted]
    hits = torch.bincount(key, minlength=size).double()
    hit_sum = torch.bincount(key, weights=values, minlength=size)
    shape = (x.latents, grid.numel())
    return hits.view(shape), hit_sum.view(shape)


def _label_sums_multi(x: Csr, dense: Tensor) -> tuple[Tensor, Tensor]:
    values = x.values.double()
    coords = torch.stack([x.indices, x.row_index()])
    shape = (x.latents, x.rows)
    ones = torch.sparse_coo_tensor(coords, torch.ones_like(values), shape, check_invariants=False)
    weighted = torch.sparse_coo_tensor(coords, values, shape, check_invariants=False)
    return torch.sparse.mm(ones, dense), torch.sparse.mm(weighted, dense)


def clean_csr(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, latents: int) -> Csr:
    """Sort columns within rows, add up duplicates and drop explicit zeros, whatever the input order."""
    from scipy import sparse

    matrix = sparse.csr_matrix((values, indices, indptr), shape=(indptr.size - 1, latents), copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    pointers = torch.from_numpy(matrix.indptr.astype(np.int64))
    return Csr(
        pointers, torch.from_numpy(matrix.indices.astype(np.int64)), torch.from_numpy(matrix.data), latents
    )
