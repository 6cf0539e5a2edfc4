"""One set of rows as an arm's passes see it: constants, evaluator, and the order of latents."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from workloads.probe1d.build import Choices
from workloads.probe1d.counters import Counts
from workloads.probe1d.data.grid import make_block
from workloads.probe1d.data.layout import Layout, build_layout, reorder, to_csc
from workloads.probe1d.data.problem import (
    Constants,
    Csr,
    Labels,
    class_totals,
    constants,
    power_sums,
    prior_logit,
    rms_scale,
)
from workloads.probe1d.kernels.event_sums import BucketKernel, CompiledKernel, EagerKernel
from workloads.probe1d.maths.chunks import CachedChunks, Chunker, EventChunks, PlannedChunks, RebuiltChunks
from workloads.probe1d.maths.csc import CscEvaluator
from workloads.probe1d.maths.csr import LabelFreeCsr, LabelledCsr
from workloads.probe1d.maths.derivatives import Block
from workloads.probe1d.maths.precision import PRECISIONS, Precision
from workloads.probe1d.maths.scales import metric_scale, rms_by_pass
from workloads.probe1d.maths.slabs import Evaluator

CACHE_BYTES = 2**21
"""Second-level cache of one core that chunk_events=auto fills; 2 MiB is common on servers."""
GPU_CHUNK_EVENTS = 2**22


@dataclass(frozen=True)
class View:
    """Rows prepared for an arm.

    `constants` and everything the evaluator takes or gives are in rank order where there is a layout;
    `order[rank]` is the latent then. `slots` [L] are the events an evaluator visits for each latent.
    """

    x: Csr
    labels: Labels
    grid: Tensor
    constants: Constants
    metric: Tensor
    evaluator: Evaluator
    slots: Tensor
    chunker: Chunker | None = None
    layout: Layout | None = None
    dense: Tensor | None = None

    @property
    def order(self) -> Tensor | None:
        """Latent at each rank, None where latents keep their order."""
        return None if self.layout is None else self.layout.order

    def reach(self) -> Tensor:
        """Largest |x| of each latent (of its nodes where compressed), float64 [L], in the order of the
        latents here."""
        found = torch.zeros(self.x.latents, dtype=torch.float64, device=self.x.values.device)
        if self.layout is None:
            return found.scatter_reduce(0, self.x.indices.long(), self.x.values.double().abs(), "amax")
        for bucket in self.layout.buckets:
            found[bucket.first : bucket.last] = torch.linalg.vector_norm(bucket.x, torch.inf, dim=1).double()
        return found

    def least(self) -> Tensor:
        """Smallest |x| of the non-zeros of each latent, infinite without any, float64 [L], in the order of
        the latents here."""
        found = torch.full((self.x.latents,), torch.inf, dtype=torch.float64, device=self.x.values.device)
        if self.layout is None:
            return found.scatter_reduce(0, self.x.indices.long(), self.x.values.double().abs(), "amin")
        for bucket in self.layout.buckets:
            found[bucket.first : bucket.last] = (
                bucket.x.abs().masked_fill(bucket.x == 0, torch.inf).amin(1).double()
            )
        return found

    def block(self, columns: Tensor, dtype: torch.dtype, flat: bool = False) -> Block:
        """The block of all latents by the classes at `columns`."""
        return make_block(self.constants, columns, self.slots, dtype, flat=flat)


def make_kernel(choices: Choices, precision: Precision, counts: Counts, device: str) -> BucketKernel:
    """The kernel of an arm: operators one by one, one generated loop, or a hand-written one."""
    if choices.fused_kernel:
        if device == "cuda":
            from workloads.probe1d.kernels.triton_kernel import TritonKernel

            return TritonKernel(precision, counts)
        from workloads.probe1d.kernels.native import NativeKernel

        return NativeKernel(precision, counts)
    return CompiledKernel(precision, counts) if choices.compile else EagerKernel(precision, counts)


def make_chunker(x: Csr, choices: Choices, classes: int, counts: Counts) -> Chunker:
    """How an arm walks over events stored by row."""
    limit = choices.chunk_limit(CACHE_BYTES, classes)
    if x.values.is_cuda and choices.chunk_events == "auto":
        limit = GPU_CHUNK_EVENTS
    if choices.label_free:
        return EventChunks(x, limit)
    if choices.cache_row_idx:
        return CachedChunks(x, limit, counts)
    return (PlannedChunks if choices.solver == "late" else RebuiltChunks)(x, limit, counts)


def make_view(x: Csr, labels: Labels, grid: Tensor, choices: Choices, counts: Counts) -> View:
    """Prepare rows for an arm: sums made once, sorting where the arm wants it, label matrix where it needs
    one."""
    found = _constants(x, labels, grid, choices, counts)
    metric = metric_scale(x, choices.qx_stat, found.count, found.sum_xx, counts)
    if choices.csc_layout:
        return _view_by_latent(x, labels, grid, choices, counts, found, metric)
    chunker = make_chunker(x, choices, grid.numel(), counts)
    dense = None if choices.label_free else labels.dense(grid)
    evaluator = csr_evaluator(x, dense, chunker, choices.precision, choices.cast_once, counts)
    return View(x, labels, grid, found, metric, evaluator, found.count, chunker=chunker, dense=dense)


def csr_evaluator(
    x: Csr, dense: Tensor | None, chunker: Chunker, precision: Precision, cast_once: bool, counts: Counts
) -> Evaluator:
    """The pass over activations stored by row, with labels where `dense` holds them."""
    if dense is None:
        return LabelFreeCsr(x, chunker, precision, cast_once, counts)
    return LabelledCsr(x, dense, chunker, precision, cast_once, counts)


def _view_by_latent(
    x: Csr, labels: Labels, grid: Tensor, choices: Choices, counts: Counts, found: Constants, metric: Tensor
) -> View:
    layout = build_layout(to_csc(x), choices.precision.compute)
    counts.add("padded_slots", layout.padded)
    counts.add("stored_events", x.nnz)
    kernel = make_kernel(choices, choices.precision, counts, x.values.device.type)
    evaluator = CscEvaluator(layout, kernel, choices.precision, counts)
    return View(
        x,
        labels,
        grid,
        reorder(found, layout.order),
        metric[layout.order],
        evaluator,
        layout.slots,
        layout=layout,
    )


def _constants(x: Csr, labels: Labels, grid: Tensor, choices: Choices, counts: Counts) -> Constants:
    found = constants(x, labels, grid) if choices.label_free else labelled_constants(x, labels, grid)
    if choices.qx_stat != "rms":
        return found
    number, squares = rms_by_pass(x, counts)
    return dataclasses.replace(
        found, count=number.double(), sum_xx=squares.double(), scale=rms_scale(number, squares)
    )


def labelled_constants(x: Csr, labels: Labels, grid: Tensor) -> Constants:
    """Constants of a path that sums labels on every pass: the label sums are left at zero, and nothing reads
    them."""
    count, sum_x, sum_xx = power_sums(x)
    totals = class_totals(labels, grid)
    empty = torch.zeros(x.latents, grid.numel(), dtype=torch.float64, device=x.values.device)
    prior = prior_logit(totals, x.rows)
    return Constants(x.rows, count, sum_x, sum_xx, totals, prior, empty, empty, rms_scale(count, sum_xx))


def float64_evaluator(view: View, choices: Choices, counts: Counts) -> Evaluator:
    """The arm's own pass in float64, for certification and polish."""
    precision = PRECISIONS["f64"]
    if view.layout is not None:
        return CscEvaluator(
            view.layout, make_kernel(choices, precision, counts, view.x.values.device.type), precision, counts
        )
    assert view.chunker is not None
    return csr_evaluator(view.x, view.dense, view.chunker, precision, choices.cast_once, counts)
