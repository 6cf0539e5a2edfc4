"""The last word on every pair: gradient and Newton decrement in float64 on all events, then polishing."""

from __future__ import annotations

import torch
from torch import Tensor

from workloads.probe1d.counters import Counts
from workloads.probe1d.maths.blocks import Block
from workloads.probe1d.maths.derivatives import Derivatives, EventSums, combine, scaled_gradient
from workloads.probe1d.maths.ill_conditioned import ill_conditioned
from workloads.probe1d.maths.newton import NewtonRules, newton_decrement
from workloads.probe1d.maths.polish import Polisher
from workloads.probe1d.maths.prepared_rows import PreparedRows
from workloads.probe1d.maths.separable import tail_is_paid
from workloads.probe1d.maths.solution import Reason, Solution

TRUSTED = 1e-8
"""Determinant over the product of the diagonal below which a raw Hessian in float64 says too little: the
centred one decides."""


class Certifier:
    """Evaluates solved pairs once in float64 and has those polished that do not pass.

    `rows` hold their label sums; their `evaluator` sums in float64.
    """

    def __init__(
        self, rows: PreparedRows, polisher: Polisher, solution: Solution, counts: Counts, rules: NewtonRules
    ) -> None:
        self.rows, self.polisher, self.solution = rows, polisher, solution
        self.counts, self.rules = counts, rules
        self.least, self.ill_conditioned = rows.least(), ill_conditioned(rows.constants)

    def certify(self, columns: Tensor) -> None:
        """Certify the classes at `columns` at the stored solution and store what changed."""
        self.rows.evaluator.begin(columns)
        block = self.rows.block(columns, torch.float64, flat=self.rows.layout is not None)
        flat = block.pair.reshape(-1)
        b, w = self.solution.b[flat].view(block.pair.shape), self.solution.w[flat].view(block.pair.shape)
        sums = self.rows.evaluator.sums(block, b, w, with_loss=False).double()
        grad = combine(block, b, w, sums, 1.0 / block.rows, clip=0.0)
        gmax = scaled_gradient(block, grad.g0, grad.g1)
        passed = self._passed(block, b, sums, grad, gmax)
        # A dead latent has no data for w: it keeps its start, whatever its gradient.
        dead = (block.count == 0).expand_as(gmax)
        reason = torch.where(passed, int(Reason.CONVERGED), int(Reason.BUDGET))
        self.solution.store(block.pair, gmax=gmax, reason=torch.where(dead, int(Reason.DEAD), reason))
        failed = ~(passed | dead)
        number = self.counts.read(failed.sum())
        if number:
            self.counts.add("polished_pairs", number)
            self.polisher.polish(block.pair[failed])

    def _passed(self, block: Block, b: Tensor, sums: EventSums, grad: Derivatives, gmax: Tensor) -> Tensor:
        """Pairs at their optimum, as far as raw coordinates tell: of ill-conditioned latents they do not."""
        least = self.least.index_select(0, block.latent).unsqueeze(1)
        return (
            (gmax <= self.rules.tol)
            & small_decrement(grad, self.rules.decrement)
            & tail_is_paid(block, b, sums, grad, least, self.rules.tol, self.rules.tail_loss)
            & ~self.ill_conditioned.index_select(0, block.latent).unsqueeze(1)
        )


def small_decrement(grad: Derivatives, bound: float) -> Tensor:
    """Whether the Newton decrement is known to be at most `bound`; not, where rounding hides it."""
    det = grad.h0 * grad.h2 - grad.h1 * grad.h1
    return (det > TRUSTED * grad.h0 * grad.h2) & (newton_decrement(grad) <= bound)
