"""Sums over activations stored by latent: one kernel call per bucket, no labels, no scatter."""

from __future__ import annotations

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.maths.blocks import Block
from perfsweep.workloads.probe1d.maths.buckets import Layout
from perfsweep.workloads.probe1d.maths.derivatives import EventSums
from perfsweep.workloads.probe1d.maths.event_sums import BucketKernel, Sums
from perfsweep.workloads.probe1d.maths.precision import Precision


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
