"""Sums over activations that are stored by row, or by latent."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import Csr
from perfsweep.workloads.probe1d.maths.blocks import Block
from perfsweep.workloads.probe1d.maths.buckets import Chunk, Chunker, Layout
from perfsweep.workloads.probe1d.maths.derivatives import EventSums
from perfsweep.workloads.probe1d.maths.event_sums import BucketKernel, Sums
from perfsweep.workloads.probe1d.maths.precision import Precision

LABELLED_SUMS = 7
LABEL_FREE_SUMS = 6
KERNELS_PER_LABELLED_CHUNK = 28
KERNELS_PER_LABEL_FREE_CHUNK = 22


class CsrEvaluator:
    """What the labelled and the label-free pass share: chunks, casts, accumulators.

    A block given to `sums` holds every latent once, in order: scatter-add cannot leave latents out.
    """

    def __init__(
        self, x: Csr, chunker: Chunker, precision: Precision, cast_once: bool, counts: Counts
    ) -> None:
        self.x, self.chunker, self.precision, self.counts = x, chunker, precision, counts
        self.values = self._cast(x.values) if cast_once else x.values

    def begin(self, columns: Tensor) -> None:
        """Prepare for blocks over the classes at grid positions `columns`."""

    def _cast(self, values: Tensor) -> Tensor:
        cast = values.to(self.precision.compute)
        if cast is not values:
            self.counts.add("casts")
            self.counts.add("bytes_cast", cast.numel() * cast.element_size())
        return cast

    def _accumulators(self, like: Tensor, number: int) -> list[Tensor]:
        shape = (self.x.latents, like.shape[1])
        return [torch.zeros(shape, dtype=self.precision.sums, device=like.device) for _ in range(number)]

    def _scatter(self, into: Tensor, columns: Tensor, terms: Tensor) -> None:
        if terms.dtype != into.dtype:
            self.counts.add("sums_acc64")
        into.index_add_(0, columns, terms.to(into.dtype))

    def _chunks(self, classes: int) -> Iterator[tuple[Chunk, Tensor, Tensor]]:
        """Chunks of one pass with their columns and values, counted."""
        values = self._cast(self.values)
        self.counts.add("event_evaluations", self.x.nnz * classes)
        if self.precision.compute == torch.float64:
            self.counts.add("events_f64", self.x.nnz * classes)
        for chunk in self.chunker():
            self.counts.add("chunks")
            part = slice(chunk.start, chunk.stop)
            yield chunk, self.x.indices[part], values[part].unsqueeze(1)


class LabelledCsr(CsrEvaluator):
    """The report-time pass: label rows gathered for every event, seven sums scattered."""

    def __init__(
        self, x: Csr, labels: Tensor, chunker: Chunker, precision: Precision, cast_once: bool, counts: Counts
    ) -> None:
        super().__init__(x, chunker, precision, cast_once, counts)
        self.all_labels = labels
        self.labels = labels

    def begin(self, columns: Tensor) -> None:
        """Take the label columns of the slab."""
        self.labels = self.all_labels.index_select(1, columns).to(self.precision.compute)

    def sums(self, block: Block, b: Tensor, w: Tensor, with_loss: bool = True) -> EventSums:
        """Seven sums over non-zeros for all latents by the slab's classes."""
        sums = self._accumulators(b, LABELLED_SUMS)
        b, w = b.to(self.precision.compute), w.to(self.precision.compute)
        for chunk, columns, x in self._chunks(b.shape[1]):
            assert chunk.row_index is not None
            y = self.labels.index_select(0, chunk.row_index)
            self.counts.add("label_gathers")
            self.counts.add("kernel_launches", KERNELS_PER_LABELLED_CHUNK)
            eta = b.index_select(0, columns) + w.index_select(0, columns) * x
            mu = torch.sigmoid(eta)
            # As the report has it: 1 - mu has no digits left where mu rounds to one.
            s = mu * (1 - mu)
            sx = s * x
            entropy = binary_cross_entropy_with_logits(eta, y, reduction="none")
            for into, terms in zip(sums, (mu, (mu - y) * x, s, sx, sx * x, entropy, y), strict=True):
                self._scatter(into, columns, terms)
        m0, residual, a0, a1, a2, loss, y_sum = sums
        return EventSums(m0=m0, a0=a0, a1=a1, a2=a2, loss=loss, residual=residual, labels=y_sum)


class LabelFreeCsr(CsrEvaluator):
    """The same pass without labels or row indices: label sums are constants."""

    def sums(self, block: Block, b: Tensor, w: Tensor, with_loss: bool = True) -> EventSums:
        """Five sums over non-zeros, and the sum of softplus where the loss is wanted."""
        m0, m1, a0, a1, a2, *rest = self._accumulators(
            b, LABEL_FREE_SUMS if with_loss else LABEL_FREE_SUMS - 1
        )
        b, w = b.to(self.precision.compute), w.to(self.precision.compute)
        for _, columns, x in self._chunks(b.shape[1]):
            self.counts.add("kernel_launches", KERNELS_PER_LABEL_FREE_CHUNK)
            eta = b.index_select(0, columns) + w.index_select(0, columns) * x
            mu = torch.sigmoid(eta)
            s = mu * (1 - mu)
            sx = s * x
            for into, terms in ((m0, mu), (m1, mu * x), (a0, s), (a1, sx), (a2, sx * x)):
                self._scatter(into, columns, terms)
            if with_loss:
                self._scatter(rest[0], columns, softplus(eta))
        return EventSums(m0=m0, m1=m1, a0=a0, a1=a1, a2=a2, loss=rest[0] if with_loss else None)


class CscEvaluator:
    """Evaluates any block with rows in rank order; rows may be missing or repeat (flat lists of pairs)."""

    def __init__(
        self,
        layout: Layout,
        kernel: BucketKernel,
        precision: Precision,
        counts: Counts,
        counter: str = "event_evaluations",
    ) -> None:
        self.layout, self.kernel, self.precision, self.counts = layout, kernel, precision, counts
        self.counter = counter
        edges = [bucket.first for bucket in layout.buckets] + [layout.order.numel()]
        self.edges = torch.tensor(edges, device=layout.order.device)
        self.known: tuple[Tensor | None, list[int]] = (None, [])

    def begin(self, columns: Tensor) -> None:
        """Nothing depends on the slab: labels are not looked at."""

    def splits(self, latent: Tensor) -> list[int]:
        """Where each bucket's rows begin in a block. Costs the host one wait whenever the block changes."""
        if self.known[0] is not latent:
            self.known = (latent, self.counts.read_all(torch.searchsorted(latent, self.edges)))
        return self.known[1]

    def sums(self, block: Block, b: Tensor, w: Tensor, with_loss: bool = True) -> EventSums:
        """Five sums over non-zeros (and padding), and the sum of softplus where the loss is wanted."""
        m0, m1, a0, a1, a2, *loss = self._run(block.latent, b, w, "loss" if with_loss else "hessian")
        return EventSums(m0=m0, m1=m1, a0=a0, a1=a1, a2=a2, loss=loss[0] if loss else None)

    def softplus_sums(self, block: Block, b: Tensor, w: Tensor) -> Tensor:
        """The sum of softplus alone, float64 [R, c]."""
        return self._run(block.latent, b, w, "value")[0].double()

    def list_sums(self, latent: Tensor, b: Tensor, w: Tensor) -> EventSums:
        """All sums of pairs whose rows `latent` int64 [R] names, ascending; b, w [R, c]."""
        m0, m1, a0, a1, a2, loss = self._run(latent, b, w, "loss")
        return EventSums(m0=m0, m1=m1, a0=a0, a1=a1, a2=a2, loss=loss)

    def _run(self, latent: Tensor, b: Tensor, w: Tensor, kind: str) -> Sums:
        splits = self.splits(latent)
        buckets = self.layout.buckets
        for bucket, start, stop in zip(buckets, splits, splits[1:], strict=False):
            if stop > start:
                self._count(bucket.width * (stop - start) * b.shape[1])
        return self.kernel.over_buckets(buckets, splits, latent, b, w, kind)

    def _count(self, events: int) -> None:
        self.counts.add("bucket_launches")
        self.counts.add(self.counter, events)
        if self.precision.compute == torch.float64:
            self.counts.add("events_f64", events)
        elif self.precision.compute != self.precision.sums:
            self.counts.add("sums_acc64")
