"""The hand-written CUDA kernel: a program per (row, tile of its pairs), values read once, no atomics.

Pairs are a flat list in which a latent's pairs are adjacent, so neighbouring pairs share their row of x. A
program walks over the events of its pairs' rows in steps of BLOCK_K, keeps the sums of BLOCK_P pairs in
registers and joins the steps in the type of the sums: float32 steps are at most 512 events long.
"""

# Triton's compiler, not Python, gives constexpr arguments and results of helpers their types.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.maths.buckets import Bucket
from perfsweep.workloads.probe1d.maths.event_sums import BucketByBucket, Sums
from perfsweep.workloads.probe1d.maths.precision import Precision

BLOCK_P = {torch.float32: 16, torch.float64: 8}
"""Pairs of a program by the type of their terms: float64 has half as many, or registers would spill."""
BLOCK_K = 64
KINDS = {"hessian": (0, 5), "loss": (1, 6)}


@triton.jit
def _log1p(t):
    """log(1 + t) for t in [0, 1] to the last digits: rounding in 1 + t is undone by what it left of t [1].

    [1] Hewlett-Packard, HP-15C Advanced Functions Handbook (W. Kahan), 1982
    """
    u = 1.0 + t
    kept = u - 1.0
    return tl.where(kept == 0.0, t, tl.log(u) * (t / tl.where(kept == 0.0, 1.0, kept)))


@triton.jit(do_not_specialize=["pairs", "width"])  # or each kind of count would compile a kernel of its own
def _sums(
    x_ptr,
    row_ptr,
    b_ptr,
    w_ptr,
    out_ptr,
    pairs,
    width,
    KIND: tl.constexpr,
    COMPUTE: tl.constexpr,
    SUMS: tl.constexpr,
    P: tl.constexpr,
    K: tl.constexpr,
):
    pair = tl.program_id(0).to(tl.int64) * P + tl.arange(0, P)
    inside = pair < pairs
    row = tl.load(row_ptr + pair, mask=inside, other=0)
    b = tl.load(b_ptr + pair, mask=inside, other=0.0).to(COMPUTE)[:, None]
    w = tl.load(w_ptr + pair, mask=inside, other=0.0).to(COMPUTE)[:, None]
    m0 = tl.zeros((P,), SUMS)
    m1 = tl.zeros((P,), SUMS)
    a0 = tl.zeros((P,), SUMS)
    a1 = tl.zeros((P,), SUMS)
    a2 = tl.zeros((P,), SUMS)
    loss = tl.zeros((P,), SUMS)
    for start in range(0, width, K):
        slot = start + tl.arange(0, K)
        held = inside[:, None] & (slot < width)[None, :]
        at = row[:, None] * width + slot[None, :]
        x = tl.load(x_ptr + at, mask=held, other=0.0).to(COMPUTE)
        count = held.to(COMPUTE)
        eta = b + w * x
        t = tl.exp(-tl.abs(eta))
        r = 1.0 / (1.0 + t)
        mu = tl.where(eta >= 0, r, t * r) * count
        m0 += tl.sum(mu, 1).to(SUMS)
        m1 += tl.sum(mu * x, 1).to(SUMS)
        s = t * r * r * count
        sx = s * x
        a0 += tl.sum(s, 1).to(SUMS)
        a1 += tl.sum(sx, 1).to(SUMS)
        a2 += tl.sum(sx * x, 1).to(SUMS)
        if KIND == 1:
            loss += tl.sum((tl.maximum(eta, 0.0) + _log1p(t)) * count, 1).to(SUMS)
    tl.store(out_ptr + pair, m0, mask=inside)
    tl.store(out_ptr + pairs + pair, m1, mask=inside)
    tl.store(out_ptr + 2 * pairs + pair, a0, mask=inside)
    tl.store(out_ptr + 3 * pairs + pair, a1, mask=inside)
    tl.store(out_ptr + 4 * pairs + pair, a2, mask=inside)
    if KIND == 1:
        tl.store(out_ptr + 5 * pairs + pair, loss, mask=inside)


_TYPES = {torch.float32: tl.float32, torch.float64: tl.float64}


class TritonKernel(BucketByBucket):
    """One launch per bucket over a flat list of pairs."""

    def __init__(self, precision: Precision, counts: Counts) -> None:
        self.precision, self.counts = precision, counts

    def __call__(self, bucket: Bucket, row: Tensor, b: Tensor, w: Tensor, kind: str) -> Sums:
        """See BucketKernel."""
        number, size = KINDS[kind]
        block = BLOCK_P[self.precision.compute]
        classes = b.shape[1]
        pairs = (row if classes == 1 else row.repeat_interleave(classes)).contiguous()
        out = torch.empty((size, pairs.numel()), dtype=self.precision.sums, device=b.device)
        _sums[(triton.cdiv(pairs.numel(), block),)](  # pyright: ignore[reportIndexIssue]
            bucket.x,
            pairs,
            b.reshape(-1).contiguous(),
            w.reshape(-1).contiguous(),
            out,
            pairs.numel(),
            bucket.width,
            KIND=number,
            COMPUTE=_TYPES[self.precision.compute],
            SUMS=_TYPES[self.precision.sums],
            P=block,
            K=BLOCK_K,
        )
        self.counts.add("fused_launches")
        self.counts.add("kernel_launches")
        return tuple(term.view(-1, classes) for term in out)
