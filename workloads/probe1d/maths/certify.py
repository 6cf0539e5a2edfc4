"""The last word on every pair: gradient and Newton decrement in float64 on all events, then polishing."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from workloads.probe1d.counters import Counts
from workloads.probe1d.maths.blocks import Block
from workloads.probe1d.maths.derivatives import Derivatives, EventSums, combine, scaled_gradient
from workloads.probe1d.maths.ill_conditioned import ill_conditioned
from workloads.probe1d.maths.newton import NewtonRules, newton_decrement
from workloads.probe1d.maths.polish import Polisher
from workloads.probe1d.maths.prepared_rows import PreparedRows
from workloads.probe1d.maths.quadrature_error import SumErrors
from workloads.probe1d.maths.separable import tail_is_paid
from workloads.probe1d.maths.solution import Reason, Solution

TRUSTED = 1e-8
"""Determinant over the product of the diagonal below which a raw Hessian in float64 says too little: the
centred one decides."""


class Certifier:
    """Evaluates solved pairs once in float64 and has those polished that do not pass.

    `rows` hold their label sums; their `evaluator` sums in float64. With `nodes` in place
    of events, a pair that passes however much its nodes can miss of its events is not evaluated on these.
    """

    def __init__(
        self,
        rows: PreparedRows,
        polisher: Polisher,
        solution: Solution,
        counts: Counts,
        rules: NewtonRules,
        nodes: PreparedRows | None = None,
    ) -> None:
        self.rows, self.polisher, self.solution = rows, polisher, solution
        self.counts, self.rules, self.nodes = counts, rules, nodes
        self.least, self.ill_conditioned = rows.least(), ill_conditioned(rows.constants)

    def certify(self, columns: Tensor) -> None:
        """Certify the classes at `columns` at the stored solution and store what changed."""
        self.rows.evaluator.begin(columns)
        block = self.rows.block(columns, torch.float64, flat=self.rows.layout is not None)
        if self.nodes is not None:
            block = block.select(self._left_by(self.nodes, columns))
        if not block.pair.numel():
            return
        b, w = self._parameters(block)
        sums = self.rows.evaluator.sums(block, b, w, with_loss=False).double()
        failed = self._store(block, *self._judge(block, b, w, sums, SumErrors.none(b)))
        number = self.counts.read(failed.sum())
        if number:
            self.counts.add("polished_pairs", number)
            self.polisher.polish(block.pair[failed])

    def _left_by(self, nodes: PreparedRows, columns: Tensor) -> Tensor:
        """Certify what nodes can, storing a bound of its gradient; rows of the flat block that are left."""
        block = nodes.block(columns, torch.float64, flat=True)
        b, w = self._parameters(block)
        sums = nodes.evaluator.sums(block, b, w, with_loss=False).double()
        assert nodes.bins is not None
        missed = SumErrors.of(nodes.bins, block.latent, b, w).times(1.0 / block.rows)
        failed = self._store(block, *self._judge(block, b, w, sums, missed)).squeeze(1)
        self.counts.add("pairs_certified_on_nodes", self.counts.read((~failed).sum()))
        return failed.nonzero().squeeze(1)

    def _parameters(self, block: Block) -> tuple[Tensor, Tensor]:
        flat = block.pair.reshape(-1)
        return self.solution.b[flat].view(block.pair.shape), self.solution.w[flat].view(block.pair.shape)

    def _judge(
        self, block: Block, b: Tensor, w: Tensor, sums: EventSums, missed: SumErrors
    ) -> tuple[Tensor, Tensor]:
        """Scaled gradient of each pair, what was missed included, and whether it passes."""
        grad = combine(block, b, w, sums, 1.0 / block.rows, clip=0.0)
        gmax = scaled_gradient(block, grad.g0.abs() + missed.zeroth, grad.g1.abs() + missed.first)
        return gmax, self._passed(block, b, sums, grad, gmax, missed)

    def _store(self, block: Block, gmax: Tensor, passed: Tensor) -> Tensor:
        """Write verdicts; returns the pairs that fail."""
        # A dead latent has no data for w: it keeps its start, whatever its gradient.
        dead = (block.count == 0).expand_as(gmax)
        reason = torch.where(passed, int(Reason.CONVERGED), int(Reason.BUDGET))
        self.solution.store(block.pair, gmax=gmax, reason=torch.where(dead, int(Reason.DEAD), reason))
        return ~(passed | dead)

    def _passed(
        self, block: Block, b: Tensor, sums: EventSums, grad: Derivatives, gmax: Tensor, missed: SumErrors
    ) -> Tensor:
        """Pairs at their optimum, as far as raw coordinates tell: of ill-conditioned latents they do not.

        `gmax` holds what the means in `grad` may have missed already.
        """
        least = self.least.index_select(0, block.latent).unsqueeze(1)
        rules = self.rules
        wary = replace(grad, g1=grad.g1.abs() + missed.first)
        return (
            (gmax <= rules.tol)
            & small_decrement(grad, block.scale, missed, rules.decrement)
            & tail_is_paid(block, b, sums, wary, least, rules.tol, rules.tail_loss - missed.zeroth)
            & ~self.ill_conditioned.index_select(0, block.latent).unsqueeze(1)
        )


def small_decrement(grad: Derivatives, scale: Tensor, missed: SumErrors, bound: float) -> Tensor:
    """Whether the Newton decrement is known to be at most `bound`; not, where rounding hides it.

    Whatever was missed, the Hessian is no flatter than `low`, by 2 |x y| <= x^2 / scale + scale y^2; in the
    norm of its inverse, gradient and what it missed add up.
    """
    low = replace(
        grad,
        h0=grad.h0 - missed.zeroth - missed.first / scale,
        h2=grad.h2 - missed.second - missed.first * scale,
    )
    error = replace(low, g0=missed.zeroth, g1=-missed.first, h1=low.h1.abs())
    known = (low.h0 > 0) & (low.h0 * low.h2 - low.h1 * low.h1 > TRUSTED * low.h0 * low.h2)
    root = newton_decrement(low).clamp(min=0).sqrt() + newton_decrement(error).clamp(min=0).sqrt()
    return known & (root * root <= bound)
