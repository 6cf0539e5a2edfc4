"""Passes without labels, and over activations sorted by latent: kernels for them, counts by search."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Device, Toggle
from perfsweep.workloads.probe1d.claims import IDEAS
from perfsweep.workloads.probe1d.variants.part import Part
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.probe1d.data.problem import Constants, Csr, Labels
    from perfsweep.workloads.probe1d.maths.buckets import Chunker, Layout
    from perfsweep.workloads.probe1d.maths.derivatives import Evaluator
    from perfsweep.workloads.probe1d.maths.event_sums import BucketKernel
    from perfsweep.workloads.probe1d.maths.job import CountConfusion
    from perfsweep.workloads.probe1d.maths.precision import Precision
    from perfsweep.workloads.probe1d.maths.prepared_rows import PreparedRows
    from perfsweep.workloads.probe1d.maths.sums_by_row import CscEvaluator

LABEL_FREE = Toggle(
    "label_free",
    choices("off", "on", witness="label_gathers", in_code="the sums of labels before the first pass, once"),
    "sum labels once instead of gathering them on every pass",
    "analysis",
)


class LabelFree(Part):
    """Sums of labels are constants of the objective: they are made once."""

    def label_sums(self, x: Csr, labels: Labels, grid: Tensor) -> Constants:
        """All of them."""
        from perfsweep.workloads.probe1d.data.problem import constants

        return constants(x, labels, grid, self.penalty)

    def rows(self, x: Csr, labels: Labels, grid: Tensor, sums: Constants, metric: Tensor) -> PreparedRows:
        """By row, in plain runs of events: no pass asks which row an event lies in."""
        from perfsweep.workloads.probe1d.maths.buckets import EventChunks
        from perfsweep.workloads.probe1d.maths.prepared_rows import PreparedRows

        chunker = EventChunks(x, self.chunk_limit(grid.numel(), x.values.is_cuda))
        evaluator = self.row_evaluator(x, None, chunker, self.precision)
        return PreparedRows(x, labels, grid, sums, metric, evaluator, sums.count, chunker)

    def row_evaluator(
        self, x: Csr, dense: Tensor | None, chunker: Chunker, precision: Precision
    ) -> Evaluator:
        """Sums without labels."""
        from perfsweep.workloads.probe1d.maths.sums_by_row import LabelFreeCsr

        return LabelFreeCsr(x, chunker, precision, self.cast_once, self.counts)


CSC_LAYOUT = Toggle(
    "csc_layout",
    choices(
        "off",
        "on",
        requires={"label_free": ("on",)},
        witness="bucket_launches",
        in_code="activations sorted by latent once, and row sums of padded buckets instead of a scatter",
    ),
    "sort activations by latent into padded buckets: no scatter",
    "analysis",
)
BY_LATENT = {"label_free": ("on",), "csc_layout": ("on",)}


class BucketSums(Part):
    """What sums over activations sorted by latent, wherever an arm needs them."""

    @property
    def in_float32(self) -> bool:
        """Whether events are evaluated in float32."""
        import torch

        return self.precision.compute == torch.float32

    def kernel(self, precision: Precision, device: str) -> BucketKernel:
        """Operators one by one."""
        from perfsweep.workloads.probe1d.maths.event_sums import EagerKernel

        return EagerKernel(precision, self.counts)

    def bucket_evaluator(self, layout: Layout, precision: Precision, x: Csr) -> CscEvaluator:
        """One kernel call for each bucket."""
        from perfsweep.workloads.probe1d.maths.sums_by_row import CscEvaluator

        return CscEvaluator(layout, self.kernel(precision, x.values.device.type), precision, self.counts)

    def cheap(self, train: PreparedRows) -> PreparedRows | None:
        """Sums that certify most pairs at less cost than float64: of events in float32."""
        return None if train.layout is None or not self.in_float32 else train


class ByLatent(BucketSums):
    """Activations are sorted once; no label and no row index is looked at again."""

    def rows(self, x: Csr, labels: Labels, grid: Tensor, sums: Constants, metric: Tensor) -> PreparedRows:
        """By latent, in rank order."""
        from perfsweep.workloads.probe1d.maths.buckets import build_layout, reorder, to_csc
        from perfsweep.workloads.probe1d.maths.prepared_rows import PreparedRows

        layout = build_layout(to_csc(x), self.precision.compute)
        self.counts.add("padded_slots", layout.padded)
        self.counts.add("stored_events", x.nnz)
        evaluator = self.bucket_evaluator(layout, self.precision, x)
        sums, metric = reorder(sums, layout.order), metric[layout.order]
        return PreparedRows(x, labels, grid, sums, metric, evaluator, layout.slots, layout=layout)

    def chunk_bytes(self, classes: int) -> int:
        """No pass has chunks."""
        return 0


class Compiled(ByLatent):
    """One generated loop over a bucket."""

    def kernel(self, precision: Precision, device: str) -> BucketKernel:
        """By torch.compile."""
        from perfsweep.workloads.probe1d.maths.event_sums import CompiledKernel

        return CompiledKernel(precision, self.counts)


def needs_native_compiler(device: Device) -> str | None:
    """Reason why the hand-written kernel cannot be built: Triton needs CUDA, the CPU's a C++ compiler."""
    if device.type == "cuda" or device.compiler:
        return None
    return "the native kernel needs a C++ compiler on CPU and none is on PATH"


FUSED_KERNEL = Toggle(
    "fused_kernel",
    choices(
        "off",
        "on",
        requires=BY_LATENT,
        conflicts={"compile": ("on",), "precision": ("f32acc64",)},
        unsupported=needs_native_compiler,
        witness="fused_launches",
    ),
    "hand-written kernel for the sums: Triton on CUDA; C++ on CPU, for start, steps, verdicts and counts too",
    "analysis",
)


class Fused(ByLatent):
    """Hand-written kernels."""

    def native(self, x: Csr) -> bool:
        """On a CPU."""
        return x.values.device.type == "cpu"

    def kernel(self, precision: Precision, device: str) -> BucketKernel:
        """One launch for all buckets on CUDA, one call on a CPU."""
        if device == "cuda":
            from perfsweep.workloads.probe1d.kernels.triton_kernel import TritonKernel

            return TritonKernel(precision, self.counts)
        from perfsweep.workloads.probe1d.kernels.native import NativeKernel

        return NativeKernel(precision, self.counts)

    def cheap(self, train: PreparedRows) -> PreparedRows | None:
        """The hand-written kernels add in blocks at no cost."""
        from perfsweep.workloads.probe1d.maths.precision import PRECISIONS

        if (found := super().cheap(train)) is None or found.layout is None:
            return None
        evaluator = self.bucket_evaluator(found.layout, PRECISIONS["block"], found.x)
        return dataclasses.replace(found, evaluator=evaluator)


CONFUSION_SEARCH = Toggle(
    "confusion_search",
    choices("off", "on", requires=BY_LATENT, witness="confusion_searches"),
    "count predictions by binary search in sorted values",
    IDEAS,
)


class Searched(Part):
    """A prediction is monotone in the activation: two binary searches count those of a pair."""

    def confusion(self, train: PreparedRows) -> CountConfusion:
        """By a kernel where one runs."""
        from perfsweep.workloads.probe1d.kernels.native import NativeCounts
        from perfsweep.workloads.probe1d.maths.confusion import SearchedConfusion
        from perfsweep.workloads.probe1d.maths.ill_conditioned import ill_conditioned

        x, labels, grid = train.x, train.labels, train.grid
        if self.native(x):
            layout = exact_layout(train)
            assert layout is not None
            return NativeCounts(x, labels, grid, layout, train.constants.count, self.counts)
        ranks = ill_conditioned(train.constants).nonzero().squeeze(1)
        ill = ranks if train.order is None else train.order[ranks]
        return SearchedConfusion(x, labels, grid, self.counts, ill)


def exact_layout(train: PreparedRows) -> Layout | None:
    """The layout of events as they are stored: the arm's own unless that rounds float64 values."""
    import torch

    from perfsweep.workloads.probe1d.maths.buckets import build_layout, to_csc

    if train.layout is None or train.x.values.dtype != torch.float64:
        return train.layout
    rounded = any(bucket.x.dtype != torch.float64 for bucket in train.layout.buckets)
    return build_layout(to_csc(train.x), torch.float64) if rounded else train.layout


VARIANTS = (
    Variant(LABEL_FREE, {"on": LabelFree}),
    Variant(CSC_LAYOUT, {"on": ByLatent}),
    Variant(shared.compile("on", source="analysis", every={"requires": BY_LATENT}), {"on": Compiled}),
    Variant(FUSED_KERNEL, {"on": Fused}),
    Variant(CONFUSION_SEARCH, {"on": Searched}),
)
