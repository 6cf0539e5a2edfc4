"""The last word on every pair: gradient and decrement on all events, errors included, then polishing.

Solvers minimise the objective; a pair passes here only where the loss alone is at its minimum too. What does
not pass is polished to the minimum of the objective, and says so where the penalty costs more than that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.maths.blocks import Block, Reason, Solution
from perfsweep.workloads.probe1d.maths.derivatives import (
    Derivatives,
    EventSums,
    cancels,
    combine,
    label_free_loss,
    scaled_gradient,
)
from perfsweep.workloads.probe1d.maths.ill_conditioned import ill_conditioned, with_exact_losses
from perfsweep.workloads.probe1d.maths.newton import Limits, NewtonRules, minimum_is_near, newton_decrement
from perfsweep.workloads.probe1d.maths.polish import Polisher
from perfsweep.workloads.probe1d.maths.precision import BLOCK_EVENTS
from perfsweep.workloads.probe1d.maths.prepared_rows import PreparedRows
from perfsweep.workloads.probe1d.maths.separable import separable_pairs, tail_is_paid
from perfsweep.workloads.probe1d.maths.sums_by_row import CscEvaluator

STEPS = 32
"""Float32 roundings of a term, those of eta left out, and of joined sums."""
ROUNDING = torch.finfo(torch.float32).eps / 2
TRUSTED = 1e-8
"""Determinant over the product of the diagonal below which a raw Hessian in float64 says too little: the
centred one decides."""


@dataclass(frozen=True)
class SumErrors:
    """By how much sums over events may be off: what certifies pairs without float64 sums over events.

    Bounds, float64 [R, 1] each, of the error of m0 and a0, of that of m1 and a1, and of that of a2. Float32
    eta is off by two roundings of |b| + |w x|, and mu and s change by no larger a share than eta by value.
    Every other rounding adds no more: STEPS, and one for each addition of the longest sum.
    """

    zeroth: Tensor
    first: Tensor
    second: Tensor

    @classmethod
    def none(cls, like: Tensor) -> SumErrors:
        """Bounds of float64 sums over events."""
        return cls(*(torch.zeros_like(like) for _ in range(3)))

    @classmethod
    def of_rounding(
        cls, sums: EventSums, b: Tensor, w: Tensor, reach: Tensor, additions: Tensor, positive: Tensor
    ) -> SumErrors:
        """Bounds of float32 `sums` whose longest takes some `additions`.

        Rows have |x| up to `reach`, and x > 0 where `positive`; [R, 1] all.
        """
        assert sums.m1 is not None
        share = ROUNDING * (STEPS + additions + 2 * (b.abs() + w.abs() * reach))
        # The sum of mu |x|, which is no less than that of s |x|.
        size = torch.where(positive, sums.m1.abs(), reach * sums.m0)
        return cls(share * sums.m0, share * size, share * sums.a2)

    def times(self, unit: float) -> SumErrors:
        """The same of sums times `unit`."""
        return SumErrors(self.zeroth * unit, self.first * unit, self.second * unit)


class Verdict(Protocol):
    """What `Certifier` judges pairs by, in one loop: but for the condition of their latents."""

    def __call__(
        self,
        block: Block,
        parameters: tuple[Tensor, Tensor],
        sums: EventSums,
        off: SumErrors,
        limits: Limits,
        rules: NewtonRules,
        trusted: float,
    ) -> tuple[Tensor, Tensor]:
        """Scaled gradient of each pair, what it may be `off` by included, and whether it passes."""
        ...


class Certifier:
    """Evaluates solved pairs once and has those polished that do not pass in float64.

    `rows` hold their label sums; their `evaluator` sums in float64. `cheap` rows, where given, come first:
    events summed in float32. A pair that passes there whatever such sums may be
    off by is not evaluated any further, and its gradient is stored as a bound; what the solver is sure of is
    not evaluated at all. With `losses`, which takes rows by latent, each pair's mean loss is stored as well.
    """

    def __init__(
        self,
        rows: PreparedRows,
        polisher: Polisher,
        solution: Solution,
        counts: Counts,
        rules: NewtonRules,
        cheap: PreparedRows | None = None,
        verdict: Verdict | None = None,
        losses: bool = False,
    ) -> None:
        self.rows, self.polisher, self.solution = rows, polisher, solution
        self.counts, self.rules, self.cheap = counts, rules, cheap
        self.verdict, self.losses = verdict, losses
        if losses:
            solution.expect_losses()
        self.least, self.ill_conditioned = rows.least(), ill_conditioned(rows.constants)
        self.reach, self.positive = rows.reach(), rows.positive()

    def certify(self, columns: Tensor) -> None:
        """Certify the classes at `columns` at the stored solution and store what changed."""
        self._certify(columns)
        if self.losses:
            self._sum_ill_losses_by_event(columns)

    def _sum_ill_losses_by_event(self, columns: Tensor) -> None:
        """Where b and w x cancel, so do sums of losses: each event's own loss is what is left."""
        stored = self.solution.loss
        assert stored is not None
        latents, places = self.rows.x.latents, columns.to(stored.device)
        b, w, loss = (
            part.view(latents, -1).index_select(1, places)
            for part in (self.solution.b, self.solution.w, stored)
        )
        loss = with_exact_losses(loss, self.rows, places, b, w, self.ill_conditioned)
        stored.view(latents, -1).index_copy_(1, places, loss)

    def _certify(self, columns: Tensor) -> None:
        self.rows.evaluator.begin(columns)
        if self.cheap is None:
            block = self.rows.block(columns, torch.float64, flat=self.rows.layout is not None).unpenalised()
        else:
            block = self._left_by(self.cheap, columns)
        if not block.pair.numel():
            return
        b, w = self._parameters(block)
        sums = self.rows.evaluator.sums(block, b, w, with_loss=self.losses).double()
        self._store_losses(block, b, w, sums)
        failed = self._store(block, *self._judge(block, b, w, sums, SumErrors.none(b)))
        number = self.counts.read(failed.sum())
        if number:
            self.counts.add("polished_pairs", number)
            self.polisher.polish(block.pair[failed])
            if self.losses:
                self._evaluate_losses(block.select(failed.squeeze(1).nonzero().squeeze(1)))

    def _evaluate_losses(self, block: Block) -> None:
        b, w = self._parameters(block)
        self._store_losses(block, b, w, self.rows.evaluator.sums(block, b, w).double())

    def _store_losses(self, block: Block, b: Tensor, w: Tensor, sums: EventSums) -> None:
        if self.losses:
            assert sums.loss is not None
            self.solution.store(block.pair, loss=label_free_loss(block, b, w, sums.loss))

    def _left_by(self, cheap: PreparedRows, columns: Tensor) -> Block:
        """Certify what `cheap` sums can; the pairs of the flat block that are left, on all events."""
        block = self._not_sure(cheap.block(columns, torch.float64, flat=True).unpenalised(), cheap)
        b, w = self._parameters(block)
        sums = cheap.evaluator.sums(block, b, w, with_loss=self.losses).double()
        self._store_losses(block, b, w, sums)
        off = self._errors(cheap, block, b, w, sums).times(1.0 / block.rows)
        failed = self._store(block, *self._judge(block, b, w, sums, off)).squeeze(1)
        self.counts.add("pairs_certified_by_bound", self.counts.read((~failed).sum()))
        if self.losses:
            failed |= cancels(block, b, w).squeeze(1)
        left = block.select(failed.nonzero().squeeze(1))
        slots = self.rows.slots.index_select(0, left.latent).unsqueeze(1)
        return replace(left, zeros=block.rows - slots)

    def _not_sure(self, block: Block, cheap: PreparedRows) -> Block:
        """Leave out what the solver is sure of: its losses are all that is missing."""
        sure = self.solution.sure.index_select(0, block.pair.squeeze(1))
        number = self.counts.read(sure.sum())
        if not number:
            return block
        self.counts.add("pairs_certified_by_bound", number)
        if self.losses:
            assert isinstance(cheap.evaluator, CscEvaluator)
            known = block.select(sure.nonzero().squeeze(1))
            b, w = self._parameters(known)
            softplus_sum = cheap.evaluator.softplus_sums(known, b, w)
            self.solution.store(known.pair, loss=label_free_loss(known, b, w, softplus_sum))
        return block.select((~sure).nonzero().squeeze(1))

    def _errors(self, cheap: PreparedRows, block: Block, b: Tensor, w: Tensor, sums: EventSums) -> SumErrors:
        additions = cheap.slots.clamp(max=BLOCK_EVENTS) if cheap.evaluator.precision.block else cheap.slots
        limits = (
            part.index_select(0, block.latent).unsqueeze(1) for part in (self.reach, additions, self.positive)
        )
        return SumErrors.of_rounding(sums, b, w, *limits)

    def _parameters(self, block: Block) -> tuple[Tensor, Tensor]:
        flat, shape = block.pair.reshape(-1), block.pair.shape
        b, w = (part.index_select(0, flat) for part in (self.solution.b, self.solution.w))
        return b.view(shape), w.view(shape)

    def _judge(
        self, block: Block, b: Tensor, w: Tensor, sums: EventSums, off: SumErrors
    ) -> tuple[Tensor, Tensor]:
        """Scaled gradient of each pair, what it may be off by included, and whether it passes."""
        reach, least = (part.index_select(0, block.latent).unsqueeze(1) for part in (self.reach, self.least))
        limits = Limits(block.scale, reach, least)
        if self.verdict is not None:
            gmax, passed = self.verdict(block, (b, w), sums, off, limits, self.rules, TRUSTED)
            return gmax, passed & self._conditioned(block)
        grad = combine(block, b, w, sums, 1.0 / block.rows, clip=0.0)
        gmax = scaled_gradient(block, grad.g0.abs() + off.zeroth, grad.g1.abs() + off.first)
        return gmax, self._passed(block, b, sums, grad, gmax, off, limits)

    def _store(self, block: Block, gmax: Tensor, passed: Tensor) -> Tensor:
        """Write verdicts; returns the pairs that fail."""
        # A dead latent has no data for w: it keeps its start, whatever its gradient.
        dead = (block.count == 0).expand_as(gmax)
        reason = torch.where(passed, int(Reason.CONVERGED), int(Reason.BUDGET))
        self.solution.store(block.pair, gmax=gmax, reason=torch.where(dead, int(Reason.DEAD), reason))
        return ~(passed | dead)

    def _passed(
        self,
        block: Block,
        b: Tensor,
        sums: EventSums,
        grad: Derivatives,
        gmax: Tensor,
        off: SumErrors,
        limits: Limits,
    ) -> Tensor:
        """Pairs at their optimum, as far as raw coordinates tell: of ill-conditioned latents they do not.

        `gmax` holds already by how much the means in `grad` may be off.
        """
        rules = self.rules
        assert limits.reach is not None and limits.least is not None
        bounded = small_decrement(
            grad, block.scale, off, rules.decrement, limits.reach, separable_pairs(block)
        )
        wary = replace(grad, g1=grad.g1.abs() + off.first)
        return (
            (gmax <= rules.tol)
            & bounded
            & tail_is_paid(block, b, sums, wary, limits.least, rules.tol, rules.tail_loss - off.zeroth)
            & self._conditioned(block)
        )

    def _conditioned(self, block: Block) -> Tensor:
        return ~self.ill_conditioned.index_select(0, block.latent).unsqueeze(1)


def small_decrement(
    grad: Derivatives, scale: Tensor, off: SumErrors, bound: float, reach: Tensor, tails: Tensor
) -> Tensor:
    """Whether the Newton decrement is known to be at most `bound`, and to bound the loss that is left.

    Not, where rounding hides it, or where events within `reach` may lose their curvature on the way to the
    minimum; of `tails` another test tells that.

    However far sums are off, the Hessian is no flatter than `low`, by 2 |x y| <= x^2 / scale + scale y^2; in
    the norm of its inverse, the gradient's own length and that of its error add up.
    """
    low = replace(
        grad, h0=grad.h0 - off.zeroth - off.first / scale, h2=grad.h2 - off.second - off.first * scale
    )
    error = replace(low, g0=off.zeroth, g1=-off.first, h1=low.h1.abs())
    known = (low.h0 > 0) & (low.h0 * low.h2 - low.h1 * low.h1 > TRUSTED * low.h0 * low.h2)
    root = newton_decrement(low).clamp(min=0).sqrt() + newton_decrement(error).clamp(min=0).sqrt()
    decrement = root * root
    return known & (decrement <= bound) & (tails | minimum_is_near(low, reach, decrement))
