"""The optimised solver: damped Newton whose steps are accepted by slope, so that no pass needs the loss.

After moving by -d the slope along -d is D+ = -g+ . d. Convexity makes D+ <= 0 a proof of descent; a small
overshoot is let through and a larger one halved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.maths.blocks import Block, Reason, Solution, rows_at
from perfsweep.workloads.probe1d.maths.derivatives import (
    Derivatives,
    Evaluator,
    EventSums,
    combine,
    scaled_gradient,
)
from perfsweep.workloads.probe1d.maths.ill_conditioned import beyond_lanes
from perfsweep.workloads.probe1d.maths.pass_log import DeviceLog, NoHook, PassFacts, WaitingLog
from perfsweep.workloads.probe1d.maths.separable import TAIL_LOSS, tail_is_paid, tail_metric

STEP_BUDGET = 6.0
"""Longest step in logits: the quadratic model of a logistic loss is worth little beyond."""
STEP_LIMIT = 6.0
"""Logits beyond which nothing is foreseen of a step: the bound is useless long before, and exp must not
overflow."""
OVERSHOOT = 0.9
"""Share of the old slope that may turn up on the far side of the minimum before a step is halved: ending with
less slope than it began with, a step has lowered anything near a parabola."""
DECREMENT_TOL = 5e-7
"""In a tail, which falls by e per logit, the loss that is left is twice the decrement."""
FLOAT32_MARGIN = 0.75
"""Share of the tolerance at which float32 lanes stop, so that their float64 certification rarely fails."""


@dataclass(frozen=True)
class NewtonRules:
    """`tol` on the scaled gradient, `decrement` on g' H^-1 g / 2, which bounds the excess loss itself.

    `tail_loss` bounds what the non-zeros of separable pairs have left. A determinant below `singular` times
    the diagonal's product is taken for rounding.
    """

    tol: float = 1e-6
    decrement: float = DECREMENT_TOL
    tail_loss: float = TAIL_LOSS
    max_iter: int = 100
    singular: float = 1e-9


@dataclass
class NewtonState:
    """Parameters, damping and the step under trial with the gradient it started from; float64 [R, c].

    Pairs that are `sure` need no certification any more.
    """

    b: Tensor
    w: Tensor
    lam: Tensor
    db: Tensor
    dw: Tensor
    g0: Tensor
    g1: Tensor
    done: Tensor
    sure: Tensor
    evals: Tensor
    gmax: Tensor

    @classmethod
    def start(cls, b: Tensor, w: Tensor, done: Tensor) -> NewtonState:
        """A state whose first evaluation is accepted: the step under trial is zero."""
        b, w = b.double().contiguous(), w.double().contiguous()
        # One tensor each: steps may work in place.
        lam, db, dw, g0, g1 = (torch.zeros_like(b) for _ in range(5))
        evals = torch.zeros_like(b, dtype=torch.int32)
        done, sure = done.contiguous(), torch.zeros_like(b, dtype=torch.bool)
        return cls(b, w, lam, db, dw, g0, g1, done, sure, evals, torch.full_like(b, torch.inf))

    def select(self, keep: Tensor) -> NewtonState:
        """The rows named by the int64 index `keep`."""
        return NewtonState(*(rows_at(getattr(self, name), keep) for name in self.__dataclass_fields__))


def solve_damped(
    grad: Derivatives, lam: Tensor, scale: Tensor, singular: float = 1e-9
) -> tuple[Tensor, Tensor]:
    """Newton step with the diagonal times 1 + lam, at most STEP_BUDGET logits in (db, scale dw)."""
    d00, d11 = grad.h0 * (1 + lam), grad.h2 * (1 + lam)
    det = d00 * d11 - grad.h1 * grad.h1
    # Rounded sums of a latent with one value and no zeros can make the matrix singular: damp that pair.
    weak = det <= singular * d00 * d11
    det = torch.where(weak, det.clamp(min=0) + 1e-3 * d00 * d11, det)
    db = (d11 * grad.g0 - grad.h1 * grad.g1) / det  # Cramer's rule
    dw = (d00 * grad.g1 - grad.h1 * grad.g0) / det
    # In logits: a move of one changes weights mu (1 - mu) by up to a factor e, and the model with them.
    length = torch.sqrt(db * db + (scale * dw) ** 2)
    shrink = (STEP_BUDGET / length).clamp(max=1)
    return db * shrink, dw * shrink


def newton_decrement(grad: Derivatives) -> Tensor:
    """g' H^-1 g / 2: the excess loss that the quadratic model sees."""
    # Cauchy-Schwarz keeps the determinant from being negative; rounding does not.
    det = (grad.h0 * grad.h2 - grad.h1 * grad.h1).clamp(min=1e-12 * grad.h0 * grad.h2)
    form = grad.h2 * grad.g0 * grad.g0 - 2 * grad.h1 * grad.g0 * grad.g1 + grad.h0 * grad.g1 * grad.g1
    return form / det / 2


def minimum_is_near(grad: Derivatives, reach: Tensor, decrement: Tensor) -> Tensor:
    """Whether a Newton `decrement` bounds the excess loss, which is at most twice as much then.

    Far from the minimum of a row of events whose weights vanish on the way, it says nothing: their curvature
    hides what others have left. With L, the norm of the gradient in that of H^-1, and S^2 the largest x' H^-1
    x of a row x = (1, x1), |x1| up to `reach`, the minimum is near if L S < 1 (Bach 2010, self-concordance of
    logistic regression): then the excess is at most (s + (1 - s) log(1 - s)) / S^2 at s = L S, below L^2.
    """
    det = (grad.h0 * grad.h2 - grad.h1 * grad.h1).clamp(min=1e-12 * grad.h0 * grad.h2)
    farthest = grad.h2 + 2 * grad.h1.abs() * reach + grad.h0 * reach * reach
    return 2 * decrement * farthest < det


@dataclass(frozen=True)
class Foresight:
    """What bounds the gradient after a step: `reach`, largest |x| of each row, and its `scale`, [R, 1]."""

    reach: Tensor
    scale: Tensor

    def bounds(self, grad: Derivatives, db: Tensor, dw: Tensor) -> tuple[Tensor, Tensor]:
        """Upper bounds of scaled gradient and Newton decrement where -(db, dw) leads to, [R, c].

        No logit moves by more than r = |db| + reach |dw|, so that no weight mu (1 - mu) on the way changes by
        more than a factor exp(r) (Bach 2010, self-concordance of logistic regression). The gradient that is
        left is what the step leaves unsolved of the linear model plus at most phi(r) |d|_H, phi(r) = (exp(r)
        - 1 - r) / r, in the norm of H^-1.
        """
        logits = (db.abs() + self.reach * dw.abs()).clamp(max=STEP_LIMIT)
        # phi(r) = r/2 + O(r^2): below 1e-4 the difference cancels, and r itself is bound enough.
        phi = torch.where(logits < 1e-4, logits, (torch.expm1(logits) - logits) / logits.clamp(min=1e-4))
        phi = torch.where(logits < STEP_LIMIT, phi, torch.inf)
        drift = phi * (grad.h0 * db * db + 2 * grad.h1 * db * dw + grad.h2 * dw * dw).clamp(min=0).sqrt()
        left = replace(
            grad, g0=grad.g0 - grad.h0 * db - grad.h1 * dw, g1=grad.g1 - grad.h1 * db - grad.h2 * dw
        )
        # |drift|_H^-1 reaches a single component by at most the root of its diagonal entry of H.
        g0 = left.g0.abs() + grad.h0.sqrt() * drift
        g1 = left.g1.abs() + grad.h2.sqrt() * drift
        norm = (2 * newton_decrement(left)).clamp(min=0).sqrt() + drift
        return torch.maximum(g0, g1 / self.scale), torch.exp(logits) * norm * norm / 2


def advance(
    block: Block | None,
    state: NewtonState,
    grad: Derivatives,
    scale: Tensor,
    gmax: Tensor,
    paid: Tensor,
    rules: NewtonRules,
    foresight: Foresight | None = None,
) -> tuple[NewtonState, Tensor]:
    """Judge the last step at the point it led to, then move on.

    Returns the new state and how many steps were halved, int64. `paid` [R, c] are the pairs that may be done
    as far as their tails are concerned; a `block`, which must hold its label sums, has the steps of tails
    measured by the events that still count.

    With `foresight` a pair whose next step is bound to end below both tolerances takes it and is done: the
    evaluation that would only confirm this is saved. A pair that is done already takes a last step that is
    bound to lower its gradient.
    """
    # Downhill slopes along the last step, where it began and where it led: a line search without losses.
    before = state.g0 * state.db + state.g1 * state.dw
    along = grad.g0 * state.db + grad.g1 * state.dw
    fine = paid & (gmax <= rules.tol) & (newton_decrement(grad) <= rules.decrement)
    done = state.done | fine
    # The slope after the step, -along, has turned uphill by more than is let through.
    halve = (-along > OVERSHOOT * before.abs()) & ~done
    metric = scale if block is None else tail_metric(block, grad, scale)
    # Exactly zero in the end: any damping left would cost Newton its quadratic convergence.
    lam = torch.where(state.lam * 0.1 < 1e-9, 0.0, state.lam * 0.1)
    db, dw = solve_damped(grad, lam, metric, rules.singular)
    bound, decrement = _foreseen(foresight, grad, db, dw, gmax)
    foreseen = paid & ~done & ~halve & (bound <= rules.tol) & (decrement <= rules.decrement)
    last = foreseen | (fine & ~state.done & (bound < gmax) & (decrement <= newton_decrement(grad)))
    new = _moved(state, grad, (lam, db, dw), halve, stay=done & ~last)
    new.done = done | foreseen
    new.gmax = torch.where(state.done, state.gmax, torch.where(last, bound, gmax))
    return new, halve.sum()


def _foreseen(
    foresight: Foresight | None, grad: Derivatives, db: Tensor, dw: Tensor, gmax: Tensor
) -> tuple[Tensor, Tensor]:
    """Bounds of gradient and decrement after the step; infinite, promising nothing, without foresight."""
    if foresight is None:
        nothing = torch.full_like(gmax, torch.inf)
        return nothing, nothing
    return foresight.bounds(grad, db, dw)


def _moved(
    state: NewtonState, grad: Derivatives, step: tuple[Tensor, Tensor, Tensor], halve: Tensor, stay: Tensor
) -> NewtonState:
    """Parameters after the new `step` (lam, db, dw), or half the old one taken back where it overshot."""
    lam, db, dw = step
    # The state includes the old step: taking half of it back is a move by -(-db / 2).
    move_b = torch.where(halve, -state.db / 2, db)
    move_w = torch.where(halve, -state.dw / 2, dw)
    return replace(
        state,
        b=torch.where(stay, state.b, state.b - move_b),
        w=torch.where(stay, state.w, state.w - move_w),
        lam=torch.where(halve, (8 * state.lam).clamp(min=1e-3), lam),
        db=torch.where(halve, state.db / 2, db),
        dw=torch.where(halve, state.dw / 2, dw),
        # A halved step is judged again from where it started, so the gradient there is kept.
        g0=torch.where(halve, state.g0, grad.g0),
        g1=torch.where(halve, state.g1, grad.g1),
        evals=state.evals + (~state.done).int(),
    )


@dataclass(frozen=True)
class Limits:
    """Per row of a block, float64 [R, 1]: scale of w in the step budget, largest and smallest |x|.

    Without `reach` no step is foreseen; without `least`, which comes with label sums, no pair is taken for
    a tail. With `additions`, the length of the longest float32 sum, and whether all x are `positive`, a pair
    may be `sure`.
    """

    metric: Tensor
    reach: Tensor | None
    least: Tensor | None
    additions: Tensor | None = None
    positive: Tensor | None = None


@dataclass(frozen=True)
class StepResult:
    """State after a step, how many were halved, largest lam, whether all pairs are done, log facts."""

    state: NewtonState
    halved: Tensor
    lam_max: Tensor
    all_done: Tensor
    facts: PassFacts


class Step(Protocol):
    """From sums at a state to the next state, which may be the same tensors written over."""

    def __call__(
        self, block: Block, state: NewtonState, sums: EventSums, limits: Limits, rules: NewtonRules
    ) -> StepResult:
        """Judge the last step and take the next one."""
        ...


def torch_step(
    block: Block, state: NewtonState, sums: EventSums, limits: Limits, rules: NewtonRules
) -> StepResult:
    """Derivatives from `sums`, then `advance`, operator by operator."""
    grad = combine(block, state.b, state.w, sums, 1.0 / block.rows, clip=0.0)
    gmax = scaled_gradient(block, grad.g0, grad.g1)
    paid = torch.ones_like(state.done)
    if limits.least is not None:
        paid = tail_is_paid(block, state.b, sums, grad, limits.least, rules.tol, rules.tail_loss)
    foresight = None if limits.reach is None else Foresight(limits.reach, block.scale)
    of_labels = None if limits.least is None else block
    state, halved = advance(of_labels, state, grad, limits.metric, gmax, paid, rules, foresight)
    facts = PassFacts(None, grad.g0, grad.g1, state.lam, None)
    return StepResult(state, halved, state.lam.max(), state.done.all(), facts)


class NewtonSolver:
    """Solves blocks of pairs with any evaluator; `compact` leaves out rows whose pairs are all done.

    `reach` [L] is the largest |x| of each latent, given where a certification follows: the last step of a
    pair is then not evaluated here. `least` [L] is the smallest |x| of its non-zeros, given where blocks hold
    their label sums. Pairs `beyond_lanes`, given the `ill_conditioned` latents [L], are not evaluated but
    left to the certification. `rounding` are additions and signs of each latent, see `Limits`, where a
    `step` certifies pairs of float32 sums. Evaluations of a pair (`evals`) are those of its gradient and
    Hessian before it was done, that at the start included and each step halved too; a dead latent has none.
    That of all pairs in float64 is counted apart, polishing is not.
    """

    def __init__(
        self,
        rules: NewtonRules,
        evaluator: Evaluator,
        log: WaitingLog | DeviceLog,
        hook: NoHook,
        counts: Counts,
        solution: Solution,
        compact: bool,
        metric: Tensor | None = None,
        phase: Callable[[str], AbstractContextManager[Any]] = NullClock.phase,
        reach: Tensor | None = None,
        least: Tensor | None = None,
        ill_conditioned: Tensor | None = None,
        step: Step = torch_step,
        rounding: tuple[Tensor | None, Tensor | None] = (None, None),
    ) -> None:
        self.by_latent = (metric, reach, least, *rounding)
        self.phase = phase
        self.ill_conditioned, self.step = ill_conditioned, step
        self.rules, self.evaluator, self.log, self.hook = rules, evaluator, log, hook
        self.counts, self.solution, self.compact = counts, solution, compact

    def solve(self, number: int, block: Block, b: Tensor, w: Tensor) -> Iterator[None]:
        """Passes over a slab from (b, w); yields before each. Dead latents keep their start, unevaluated."""
        dead = (block.count == 0).expand_as(block.pair)
        state = NewtonState.start(b, w, dead | self._left_out(block))
        state.gmax = torch.where(dead, 0.0, state.gmax)
        self.log.begin(self.rules.max_iter, b.device)
        tally = torch.zeros(2, dtype=torch.float64, device=b.device)
        for _ in range(self.rules.max_iter):
            yield
            self.hook.pass_begins(number)
            state, tally, stopped = self._pass(block, state, tally)
            if stopped:
                break
            if self.compact:
                block, state = self._compact(block, state)
                if not block.latent.numel():
                    break
        self._end_slab(block, state, tally)

    def _pass(self, block: Block, state: NewtonState, tally: Tensor) -> tuple[NewtonState, Tensor, bool]:
        """Evaluate, step and log; also whether the host knows that the slab has ended."""
        with self.phase("statistics"):
            self.counts.add("pair_evaluations", state.b.numel())
            sums = self.evaluator.sums(block, state.b, state.w, with_loss=False).double()
        with self.phase("solve"):
            result = self.step(block, state, sums, self._limits(block), self.rules)
            tally = torch.stack([tally[0] + result.halved, torch.maximum(tally[1], result.lam_max)])
        with self.phase("log"):
            self.log.write(result.facts)
            stopped = self.log.stopped(result.all_done)
        for name in ("slab_passes", "newton_passes", "scaled_tests"):
            self.counts.add(name)
        return result.state, tally, stopped

    def _end_slab(self, block: Block, state: NewtonState, tally: Tensor) -> None:
        self._store(block, state)
        self.hook.slab_ends()
        self.log.finish()
        halvings, lam = self.counts.read_all(tally)
        self.counts.add("halvings", halvings)
        self.counts.top("lambda_max", lam)
        self.counts.top("lambda_max_live", lam)
        self.counts.add("slabs")

    def _limits(self, block: Block) -> Limits:
        """Limits of the rows of a block; the stop test always measures by the root mean square."""
        metric, *others = (
            None if values is None else values.index_select(0, block.latent).unsqueeze(1)
            for values in self.by_latent
        )
        return Limits(block.scale if metric is None else metric, *others)

    def _left_out(self, block: Block) -> Tensor:
        if self.ill_conditioned is None:
            return torch.zeros_like(block.pair, dtype=torch.bool)
        return beyond_lanes(block, self.ill_conditioned)

    def _compact(self, block: Block, state: NewtonState) -> tuple[Block, NewtonState]:
        keep = (~state.done).any(1).nonzero().squeeze(1)
        self.counts.add("host_syncs")
        gone = state.b.shape[0] - keep.numel()
        if not gone:
            return block, state
        self._store(block, state)
        self.counts.add("compacted_pairs", gone * state.b.shape[1])
        return block.select(keep), state.select(keep)

    def _store(self, block: Block, state: NewtonState) -> None:
        reason = torch.where(state.done, int(Reason.CONVERGED), int(Reason.BUDGET))
        reason = torch.where(block.count == 0, int(Reason.DEAD), reason)
        self.solution.store(
            block.pair,
            **{name: getattr(state, name) for name in ("b", "w", "evals", "gmax", "sure")},
            reason=reason,
        )
