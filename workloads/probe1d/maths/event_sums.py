"""Sums over a bucket's events for many pairs at once: the arithmetic that everything else surrounds.

One definition of the terms serves the eager and the compiled kernel; the hand-written ones live in `native`
(CPU) and `triton_kernel` (CUDA) and are chosen in set-up. Shapes: bucket x [l, K], pairs [r, c], events [r,
c, K].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.maths.buckets import WIDE_LANE, Bucket
from perfsweep.workloads.probe1d.maths.precision import BLOCK_EVENTS, Precision

EAGER_EVENTS_CPU = 2**18
"""Events evaluated at once by the eager kernel on CPU: one temporary of 1 MiB stays in the L2 cache."""
EAGER_EVENTS_CUDA = 2**26

Sums = tuple[Tensor, ...]


NUMBER_OF_SUMS = {"hessian": 5, "loss": 6}


class BucketKernel(Protocol):
    """Sums over buckets: m0, m1, a0, a1, a2 and, with loss, the sum of softplus; kind value: that alone."""

    precision: Precision

    def __call__(self, bucket: Bucket, row: Tensor, b: Tensor, w: Tensor, kind: str) -> Sums:
        """Sums [r, c] at (b, w) of the bucket's rows `row` int64 [r]; kind hessian or loss."""
        ...

    def over_buckets(
        self, buckets: Sequence[Bucket], splits: list[int], rank: Tensor, b: Tensor, w: Tensor, kind: str
    ) -> Sums:
        """Sums [R, c] of ascending ranks `rank` int64 [R].

        Those from splits[i] to splits[i + 1] lie in bucket i; those before splits[0] have no events.
        """
        ...


class BucketByBucket:
    """What kernels share that know one bucket: their sums joined."""

    precision: Precision

    def over_buckets(
        self: BucketKernel,
        buckets: Sequence[Bucket],
        splits: list[int],
        rank: Tensor,
        b: Tensor,
        w: Tensor,
        kind: str,
    ) -> Sums:
        """See BucketKernel."""
        if kind == "value":
            return self.over_buckets(buckets, splits, rank, b, w, "loss")[-1:]
        b, w = b.to(self.precision.compute), w.to(self.precision.compute)
        dead = torch.zeros((splits[0], b.shape[1]), dtype=self.precision.sums, device=b.device)
        pieces = [(dead,) * NUMBER_OF_SUMS[kind]]
        for bucket, start, stop in zip(buckets, splits, splits[1:], strict=False):
            if stop > start:
                part = slice(start, stop)
                pieces.append(self(bucket, rank[part] - bucket.first, b[part], w[part], kind))
        return tuple(torch.cat(parts) for parts in zip(*pieces, strict=True))


def event_terms(x: Tensor, b: Tensor, w: Tensor, kind: str) -> Sums:
    """Terms of every event, broadcast over x [.., K] and parameters [.., 1]."""
    eta = b + w * x
    # 1/(1 + t), t = exp(-|eta|) <= 1, keeps both tails of mu and mu (1 - mu) to full relative precision.
    t = torch.exp(-eta.abs())
    r = 1 / (1 + t)
    mu = torch.where(eta >= 0, r, t * r)
    s = t * r * r
    sx = s * x
    terms = (mu, mu * x, s, sx, sx * x)
    return (*terms, eta.clamp(min=0) + torch.log1p(t)) if kind == "loss" else terms


def reduce_plain(term: Tensor, sums: torch.dtype) -> Tensor:
    """Sum over events with accumulators of type `sums`."""
    return term.sum(-1, dtype=sums)


def reduce_blocks(term: Tensor, sums: torch.dtype) -> Tensor:
    """Sum in the event type over at most BLOCK_EVENTS, then across blocks in `sums`."""
    if term.shape[-1] <= BLOCK_EVENTS:
        return term.sum(-1).to(sums)
    return term.unflatten(-1, (-1, WIDE_LANE)).sum(-1).sum(-1, dtype=sums)


class EagerKernel(BucketByBucket):
    """Torch operators one by one, over pieces small enough for the cache."""

    def __init__(self, precision: Precision, counts: Counts) -> None:
        self.precision, self.counts = precision, counts
        self.reduce = reduce_blocks if precision.block else reduce_plain

    def __call__(self, bucket: Bucket, row: Tensor, b: Tensor, w: Tensor, kind: str) -> Sums:
        """See BucketKernel."""
        limit = EAGER_EVENTS_CUDA if b.is_cuda else EAGER_EVENTS_CPU
        rows = max(1, limit // (bucket.width * b.shape[1]))
        pieces = [
            self._piece(bucket, *part, kind)
            for part in zip(row.split(rows), b.split(rows), w.split(rows), strict=True)
        ]
        return (
            pieces[0] if len(pieces) == 1 else tuple(torch.cat(parts) for parts in zip(*pieces, strict=True))
        )

    def _piece(self, bucket: Bucket, row: Tensor, b: Tensor, w: Tensor, kind: str) -> Sums:
        x = bucket.x.index_select(0, row).unsqueeze(1).to(self.precision.compute)
        terms = event_terms(x, b.unsqueeze(-1), w.unsqueeze(-1), kind)
        self.counts.add("kernel_launches", 20)
        return tuple(self.reduce(term, self.precision.sums) for term in terms)


def _flat_sums(kind: str, precision: Precision) -> Callable[..., Sums]:
    """What torch.compile turns into one loop: pairs [p], events [p, K] that never reach memory."""
    reduce = reduce_blocks if precision.block else reduce_plain
    compute, sums = precision.compute, precision.sums

    def flat_sums(x: Tensor, row: Tensor, b: Tensor, w: Tensor) -> Sums:
        terms = event_terms(x[row].to(compute), b.unsqueeze(-1), w.unsqueeze(-1), kind)
        return tuple(reduce(term, sums) for term in terms)

    # Dynamo keeps and limits its graphs by code object, which closures of one function share.
    flat_sums.__code__ = flat_sums.__code__.replace(co_name=f"flat_sums_{kind}_{precision.name}")
    return flat_sums


_COMPILED: dict[tuple[str, str, bool], Callable[..., Sums]] = {}


def compiled_sums(kind: str, precision: Precision, wide: bool) -> Callable[..., Sums]:
    """torch.compile of one variant, sizes dynamic; own function objects, so no shared recompile limit."""
    key = (kind, precision.name, wide)
    if key not in _COMPILED:
        _COMPILED[key] = torch.compile(_flat_sums(kind, precision), dynamic=True)
    return _COMPILED[key]


class CompiledKernel(BucketByBucket):
    """One generated loop per bucket, over a flat list of pairs: rows of x are gathered inside it."""

    def __init__(self, precision: Precision, counts: Counts) -> None:
        self.precision, self.counts = precision, counts

    def __call__(self, bucket: Bucket, row: Tensor, b: Tensor, w: Tensor, kind: str) -> Sums:
        """See BucketKernel."""
        classes = b.shape[1]
        pairs = row if classes == 1 else row.repeat_interleave(classes)
        wide = self.precision.block and bucket.width > BLOCK_EVENTS
        run = compiled_sums(kind, self.precision, wide)
        # Dynamo guards on the base of a view, so views of changing tensors would be compiled again and again.
        sums = _run_marked(run, bucket.x, pairs.clone(), b.flatten().clone(), w.flatten().clone())
        self.counts.add("compiled_launches")
        self.counts.add("kernel_launches")
        return tuple(term.view(-1, classes) for term in sums)


def _run_marked(run: Callable[..., Sums], x: Tensor, row: Tensor, b: Tensor, w: Tensor) -> Sums:
    # A size of 1 would be compiled into the graph and force a second one: a lone pair or row goes in twice.
    if row.numel() == 1:
        return tuple(term[:1] for term in _run_marked(run, x, row.repeat(2), b.repeat(2), w.repeat(2)))
    return run(x.repeat(2, 1) if x.shape[0] == 1 else x, row, b, w)
