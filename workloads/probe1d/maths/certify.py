"""The last word on every pair: float64 gradient on all events, float64 Newton where it is too large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from workloads.probe1d.counters import Counts
from workloads.probe1d.data.problem import RIDGE
from workloads.probe1d.maths.blocks import Block
from workloads.probe1d.maths.derivatives import Evaluator, scaled_gradient
from workloads.probe1d.maths.newton import NewtonRules, NewtonSolver
from workloads.probe1d.maths.pass_log import WaitingLog
from workloads.probe1d.maths.pass_timing import NoHook
from workloads.probe1d.maths.solution import Reason, Solution
from workloads.probe1d.maths.sums_by_latent import CscEvaluator


class GradientSource(Protocol):
    """Sums of mu and mu x (or of (mu - y) x) in float64."""

    def slope(self, block: Block, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """(sum of mu, sum of (mu - y) x) over non-zeros and padding, float64 [R, c]."""
        ...


class CscGradient:
    """Two sums per pair from the padded buckets; labels enter as constants."""

    def __init__(self, evaluator: CscEvaluator) -> None:
        self.evaluator = evaluator

    def slope(self, block: Block, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """See GradientSource."""
        m0, m1 = self.evaluator.gradient_sums(block.latent, b, w)
        return m0, m1 - block.hit_sum


class PassGradient:
    """The evaluator's own full pass, where it has no cheaper one."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator

    def slope(self, block: Block, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """See GradientSource."""
        sums = self.evaluator.sums(block, b, w, with_loss=False)
        if sums.residual is not None:
            return sums.m0, sums.residual
        assert sums.m1 is not None
        return sums.m0, sums.m1 - block.hit_sum


def true_gradient(source: GradientSource, block: Block, b: Tensor, w: Tensor) -> Tensor:
    """G of every pair of a float64 block."""
    m0, slope = source.slope(block, b, w)
    # A padding slot has x = 0 and is summed in m0 as the zero row it is; `zeros` are the others.
    g0 = (m0 + block.zeros * torch.sigmoid(b) - block.positives) / block.rows + RIDGE * (b - block.prior)
    return scaled_gradient(block, g0, slope / block.rows + RIDGE * w)


class Certifier:
    """Evaluates solved pairs once in float64 and polishes those above the tolerance.

    `separable`: rows of a block can be left out, so that only the failed pairs are polished.
    """

    def __init__(
        self,
        source: GradientSource,
        evaluator: Evaluator,
        solution: Solution,
        counts: Counts,
        tol: float,
        separable: bool,
    ) -> None:
        self.source, self.evaluator, self.solution = source, evaluator, solution
        self.counts, self.tol, self.separable = counts, tol, separable

    def certify(self, number: int, block: Block) -> None:
        """Certify a float64 `block` at the stored solution and store what changed."""
        flat = block.pair.reshape(-1)
        b, w = self.solution.b[flat].view(block.pair.shape), self.solution.w[flat].view(block.pair.shape)
        gmax = true_gradient(self.source, block, b, w)
        dead = (block.count == 0).expand_as(gmax)
        solved = (gmax <= self.tol) | dead
        reason = torch.where(solved, int(Reason.CONVERGED), int(Reason.BUDGET))
        # A dead latent has no data for w: it keeps its start, whatever its gradient.
        reason = torch.where(dead, int(Reason.DEAD), reason)
        self.solution.store(block.pair, gmax=gmax, reason=reason)
        failed = self.counts.read((~solved).sum())
        if failed:
            self.counts.add("polished_pairs", failed)
            self._polish(number, block, ~solved, b, w)

    def _polish(self, number: int, block: Block, failed: Tensor, b: Tensor, w: Tensor) -> None:
        """Float64 Newton from where the pairs stand."""
        rows = failed.any(1).nonzero().squeeze(1)
        if self.separable:
            block, b, w = block.select(rows), b[rows], w[rows]
        rules = NewtonRules(tol=self.tol)
        # Evaluations are added to those made before, so the solver writes into a copy of the counts.
        before = self.solution.evals.clone()
        quiet = WaitingLog(self.counts, lambda row: None, debug=False)
        solver = NewtonSolver(
            rules, self.evaluator, quiet, NoHook(), self.counts, self.solution, compact=self.separable
        )
        _run(solver.solve(number, block, b, w))
        pairs = block.pair.reshape(-1)
        self.solution.evals[pairs] += before[pairs]


def _run(passes: Iterator[None]) -> None:
    for _ in passes:
        continue
