"""The optimised solver: damped Newton whose steps are accepted by slope, so that no pass needs the loss.

After moving by -d the slope along -d is D+ = -g+ . d. Convexity makes D+ <= 0 a proof of descent; a small
overshoot is let through and a larger one halved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from workloads.api import NullClock
from workloads.probe1d.counters import Counts
from workloads.probe1d.data.grid import Reason, Solution
from workloads.probe1d.maths.derivatives import Block, Derivatives, EventSums, combine, scaled_gradient
from workloads.probe1d.maths.hooks import NoHook
from workloads.probe1d.maths.passlog import DeviceLog, PassFacts, WaitingLog
from workloads.probe1d.maths.slabs import Evaluator

STEP_BUDGET = 6.0
TAIL_BUDGET = 12.0
"""Longest lengthened step in logits of a separable pair: most of the way from the prior to a gradient of
1e-6."""
TAIL_DECAY = (0.25, 0.6)
"""Share of the slope that a full step leaves in an exponential tail: about 1/e."""
TAIL_LOSS = 2e-6
"""Loss that the non-zeros of a separable pair may have left when it counts as solved."""
STEP_LIMIT = 6.0
"""Logits beyond which nothing is foreseen of a step: the bound is useless long before, and exp must not
overflow."""
OVERSHOOT = 0.9
DECREMENT_TOL = 1e-6
FLOAT32_MARGIN = 0.75
"""Share of the tolerance at which float32 lanes stop, so that their float64 certification rarely fails."""


@dataclass(frozen=True)
class NewtonRules:
    """`tol` on the scaled gradient, `decrement` on g' H^-1 g / 2, which bounds the excess loss itself.

    `tails`: lengthen the steps of separable pairs, for which a block must hold its label sums.
    """

    tol: float = 1e-6
    decrement: float = DECREMENT_TOL
    max_iter: int = 100
    tails: bool = False


@dataclass
class NewtonState:
    """Parameters, damping and the step under trial with the gradient it started from; float64 [R, c]."""

    b: Tensor
    w: Tensor
    lam: Tensor
    db: Tensor
    dw: Tensor
    g0: Tensor
    g1: Tensor
    done: Tensor
    evals: Tensor
    gmax: Tensor

    @classmethod
    def start(cls, b: Tensor, w: Tensor, done: Tensor) -> NewtonState:
        """A state whose first evaluation is accepted: the step under trial is zero."""
        b, w = b.double(), w.double()
        zero = torch.zeros_like(b)
        evals = torch.zeros_like(b, dtype=torch.int32)
        return cls(b, w, zero, zero, zero, zero, zero, done, evals, torch.full_like(b, torch.inf))

    def select(self, keep: Tensor) -> NewtonState:
        """The rows named by the int64 index `keep`."""
        return NewtonState(*(getattr(self, name).index_select(0, keep) for name in self.__dataclass_fields__))


def solve_damped(grad: Derivatives, lam: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Newton step with both diagonal entries times 1 + lam, no longer than STEP_BUDGET logits in (db, scale
    dw)."""
    d00, d11 = grad.h0 * (1 + lam), grad.h2 * (1 + lam)
    det = d00 * d11 - grad.h1 * grad.h1
    # Rounded sums of a latent without zeros and with a single value can make the matrix singular: damp that
    # pair.
    weak = det <= 1e-9 * d00 * d11
    det = torch.where(weak, det.clamp(min=0) + 1e-3 * d00 * d11, det)
    db = (d11 * grad.g0 - grad.h1 * grad.g1) / det
    dw = (d00 * grad.g1 - grad.h1 * grad.g0) / det
    length = torch.sqrt(db * db + (scale * dw) ** 2)
    shrink = (STEP_BUDGET / length).clamp(max=1)
    return db * shrink, dw * shrink


def separable_pairs(block: Block) -> Tensor:
    """Pairs whose non-zeros all have one label, bool [R, c]; the block must hold its label sums."""
    return (block.hits == 0) | (block.hits == block.count)


def tail_is_paid(
    block: Block, b: Tensor, sums: EventSums, grad: Derivatives, least: Tensor, tol: float
) -> Tensor:
    """Whether the non-zeros of separable pairs have little loss left, bool [R, c]; true for all other pairs.

    Once events with large x are saturated, gradient and decrement, which they dominate, say nothing about a
    small one whose tail is still ahead. What is left is bounded by the mean probability of the wrong label,
    or, where the ridge holds the optimum itself short of that, shown by a slope that is small even for
    `least`, the smallest |x| of each row.
    """
    padding = block.rows - block.zeros - block.count
    wrong = (sums.m0 - padding * torch.sigmoid(b) - block.hits).abs() / block.rows
    return ~separable_pairs(block) | (wrong <= TAIL_LOSS) | (grad.g1.abs() <= tol * least)


def tail_metric(block: Block, grad: Derivatives, scale: Tensor) -> Tensor:
    """Scale of w for the step budget, [R, c]: of separable pairs the mean x of the events whose weight is
    left.

    Events with large x saturate first. Measured by them, the small ones that still count could move by only a
    fraction of a logit per step.
    """
    left = grad.h2 / grad.h1.abs().clamp(min=1e-300)
    return torch.where(separable_pairs(block), torch.minimum(scale.expand_as(left), left), scale)


def stretch(
    block: Block,
    state: NewtonState,
    grad: Derivatives,
    step: tuple[Tensor, Tensor],
    metric: Tensor,
    gmax: Tensor,
    tol: float,
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Steps of separable pairs made as long as their exponential tail asks for; also returns which were.

    Where all non-zeros of a pair have one label its gradient falls by e per logit, and Newton advances one
    logit per step: a full step that left about 1/e of the slope says so. ln(G / goal) such steps lead to the
    goal at once; where other events matter after all, the slope rejects the step as any other.
    """
    db, dw = step
    left = (grad.g0 * state.db + grad.g1 * state.dw) / (state.g0 * state.db + state.g1 * state.dw).clamp(
        min=1e-300
    )
    tail = separable_pairs(block) & (state.lam == 0) & (left > TAIL_DECAY[0]) & (left < TAIL_DECAY[1])
    steps = (gmax / (FAR * tol)).clamp(min=1).log().clamp(min=1)
    room = (TAIL_BUDGET / torch.sqrt(db * db + (metric * dw) ** 2).clamp(min=1e-300)).clamp(min=1)
    factor = torch.where(tail, torch.minimum(steps, room), 1.0)
    return (db * factor, dw * factor), factor > 1


def newton_decrement(grad: Derivatives) -> Tensor:
    """g' H^-1 g / 2: the excess loss that the quadratic model sees."""
    det = (grad.h0 * grad.h2 - grad.h1 * grad.h1).clamp(min=1e-12 * grad.h0 * grad.h2)
    form = grad.h2 * grad.g0 * grad.g0 - 2 * grad.h1 * grad.g0 * grad.g1 + grad.h0 * grad.g1 * grad.g1
    return form / det / 2


@dataclass(frozen=True)
class Foresight:
    """What is needed to bound the gradient after a step: `reach`, the largest |x| of each row, and its
    `scale`, [R, 1]."""

    reach: Tensor
    scale: Tensor

    def bounds(self, grad: Derivatives, db: Tensor, dw: Tensor) -> tuple[Tensor, Tensor]:
        """Upper bounds of the scaled gradient and of the Newton decrement at the point that -(db, dw) leads
        to, [R, c].

        No logit moves by more than r = |db| + reach |dw|, so that no weight mu (1 - mu) on the way changes by
        more than a factor exp(r) (Bach 2010, self-concordance of logistic regression). The gradient that is
        left is what the step leaves unsolved of the linear model plus at most phi(r) |d|_H, phi(r) = (exp(r)
        - 1 - r) / r, in the norm of H^-1.
        """
        logits = (db.abs() + self.reach * dw.abs()).clamp(max=STEP_LIMIT)
        phi = torch.where(logits < 1e-4, logits, (torch.expm1(logits) - logits) / logits.clamp(min=1e-4))
        phi = torch.where(logits < STEP_LIMIT, phi, torch.inf)
        drift = phi * (grad.h0 * db * db + 2 * grad.h1 * db * dw + grad.h2 * dw * dw).clamp(min=0).sqrt()
        left = replace(
            grad, g0=grad.g0 - grad.h0 * db - grad.h1 * dw, g1=grad.g1 - grad.h1 * db - grad.h2 * dw
        )
        g0 = left.g0.abs() + grad.h0.sqrt() * drift
        g1 = left.g1.abs() + grad.h2.sqrt() * drift
        norm = (2 * newton_decrement(left)).clamp(min=0).sqrt() + drift
        return torch.maximum(g0, g1 / self.scale), torch.exp(logits) * norm * norm / 2


def advance(
    block: Block,
    state: NewtonState,
    grad: Derivatives,
    scale: Tensor,
    gmax: Tensor,
    paid: Tensor,
    rules: NewtonRules,
    foresight: Foresight | None = None,
) -> tuple[NewtonState, Tensor]:
    """Judge the last step at the point it led to, then move on.

    Returns the new state and int64 [2]: how many steps were halved, and how many were lengthened by
    `rules.tails`. `paid` [R, c] are the pairs that may be done as far as their tails are concerned.

    With `foresight` a pair whose next step is bound to end below both tolerances takes it and is done: the
    evaluation that would only confirm this is saved. A pair that is done already takes a last step that is
    bound to lower its gradient.
    """
    before = state.g0 * state.db + state.g1 * state.dw
    after = -(grad.g0 * state.db + grad.g1 * state.dw)
    fine = paid & (gmax <= rules.tol) & (newton_decrement(grad) <= rules.decrement)
    done = state.done | fine
    halve = (after > OVERSHOOT * before.abs()) & ~done
    lam = torch.where(state.lam * 0.1 < 1e-9, 0.0, state.lam * 0.1)
    metric = tail_metric(block, grad, scale) if rules.tails else scale
    db, dw = solve_damped(grad, lam, metric)
    lengthened = torch.zeros_like(halve)
    if rules.tails:
        (db, dw), lengthened = stretch(block, state, grad, (db, dw), metric, gmax, rules.tol)
    move_b = torch.where(halve, -state.db / 2, db)
    move_w = torch.where(halve, -state.dw / 2, dw)
    bound, decrement = (
        (torch.full_like(gmax, torch.inf),) * 2 if foresight is None else foresight.bounds(grad, db, dw)
    )
    foreseen = paid & ~done & ~halve & (bound <= rules.tol) & (decrement <= rules.decrement)
    last = foreseen | (fine & ~state.done & (bound < gmax) & (decrement <= newton_decrement(grad)))
    stay = done & ~last
    new = NewtonState(
        b=torch.where(stay, state.b, state.b - move_b),
        w=torch.where(stay, state.w, state.w - move_w),
        lam=torch.where(halve, (8 * state.lam).clamp(min=1e-3), lam),
        db=torch.where(halve, state.db / 2, db),
        dw=torch.where(halve, state.dw / 2, dw),
        g0=torch.where(halve, state.g0, grad.g0),
        g1=torch.where(halve, state.g1, grad.g1),
        done=done | foreseen,
        evals=state.evals + (~state.done).int(),
        gmax=torch.where(state.done, state.gmax, torch.where(last, bound, gmax)),
    )
    return new, torch.stack([halve.sum(), (lengthened & ~halve & ~done).sum()])


class NewtonSolver:
    """Solves blocks of pairs with any evaluator; `compact` leaves out rows whose pairs are all done.

    `reach` [L] is the largest |x| of each latent, given where a certification follows: the last step of a
    pair is then not evaluated here. `least` [L] is the smallest |x| of its non-zeros, given where blocks hold
    their label sums. Evaluations of a pair (`evals`) are those of its gradient and Hessian before it was
    done, that at the start included and each step halved too; a dead latent has none. The one certification
    of all pairs in float64 (gradient only) is counted apart, polishing is not.
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
    ) -> None:
        self.metric, self.phase, self.reach, self.least = metric, phase, reach, least
        self.rules, self.evaluator, self.log, self.hook = rules, evaluator, log, hook
        self.counts, self.solution, self.compact = counts, solution, compact

    def solve(self, number: int, block: Block, b: Tensor, w: Tensor) -> Iterator[None]:
        """Passes over a slab from (b, w); yields before each. Dead latents keep their start and are not
        evaluated."""
        dead = (block.count == 0).expand_as(block.pair)
        state = NewtonState.start(b, w, dead)
        state.gmax = torch.where(dead, 0.0, state.gmax)
        self.log.begin(self.rules.max_iter, b.device)
        tally = torch.zeros(3, dtype=torch.float64, device=b.device)
        for _ in range(self.rules.max_iter):
            yield
            self.hook.pass_begins(number)
            with self.phase("statistics"):
                grad, gmax, paid = self._evaluate(block, state)
            with self.phase("solve"):
                state, steps = advance(
                    block, state, grad, self._metric(block), gmax, paid, self.rules, self._foresight(block)
                )
                tally = torch.cat([tally[:2] + steps, torch.maximum(tally[2], state.lam.max()).view(1)])
            with self.phase("log"):
                self.log.write(PassFacts(None, grad.g0, grad.g1, state.lam, None))
                stopped = self.log.stopped(state.done.all())
            self.counts.add("slab_passes")
            self.counts.add("newton_passes")
            self.counts.add("scaled_tests")
            if stopped:
                break
            if self.compact:
                block, state = self._compact(block, state)
                if not block.latent.numel():
                    break
        self._store(block, state)
        self.hook.slab_ends()
        self.log.finish()
        halvings, lengthened, lam = self.counts.read_all(tally)
        self.counts.add("halvings", halvings)
        self.counts.add("tail_steps", lengthened)
        self.counts.top("lambda_max", lam)
        self.counts.top("lambda_max_live", lam)
        self.counts.add("slabs")

    def _metric(self, block: Block) -> Tensor:
        """Scale of w in the step budget; the stop test always measures by the root mean square."""
        return block.scale if self.metric is None else self.metric.index_select(0, block.latent).unsqueeze(1)

    def _foresight(self, block: Block) -> Foresight | None:
        if self.reach is None:
            return None
        return Foresight(self.reach.index_select(0, block.latent).unsqueeze(1), block.scale)

    def _evaluate(self, block: Block, state: NewtonState) -> tuple[Derivatives, Tensor, Tensor]:
        self.counts.add("pair_evaluations", state.b.numel())
        sums = self.evaluator.sums(block, state.b, state.w, with_loss=False).double()
        grad = combine(block, state.b, state.w, sums, 1.0 / block.rows, clip=0.0)
        gmax = scaled_gradient(block, grad.g0, grad.g1)
        if self.least is None:
            return grad, gmax, torch.ones_like(state.done)
        least = self.least.index_select(0, block.latent).unsqueeze(1)
        return grad, gmax, tail_is_paid(block, state.b, sums, grad, least, self.rules.tol)

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
            block.pair, b=state.b, w=state.w, evals=state.evals, gmax=state.gmax, reason=reason
        )


PSEUDO_ROWS = 0.02
"""Rows of prior share that smooth the start. A half, the usual choice, leaves pairs without a hit several
logits short."""
FAR = 0.3
"""Share of the tolerance that the non-zeros of a separable pair may still contribute to the gradient at the
start."""


def binary_start(block: Block, sum_x: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    """Start that treats x as present or absent: smoothed shares of positives among zeros and among non-zeros.

    A pair whose non-zeros all have one label has its optimum far out, bounded only by the ridge, and Newton
    advances about a logit per step: it starts where its gradient is already below `tol`. A pair that has all
    its positives among some of its non-zeros starts cold: zeros without a single positive would put b far
    below any optimum. `sum_x` is the sum of x over non-zeros, broadcastable to [R, c].
    """
    absent = block.rows - block.count
    share = (block.positives / block.rows).clamp(1e-8, 1 - 1e-8)
    p0 = ((block.positives - block.hits + share * PSEUDO_ROWS) / (absent + 2 * PSEUDO_ROWS)).clamp(
        1e-8, 1 - 1e-8
    )
    p1 = ((block.hits + share * PSEUDO_ROWS) / (block.count + PSEUDO_ROWS)).clamp(1e-8, 1 - 1e-8)
    far = (FAR * tol * block.rows / block.count.clamp(min=1)).clamp(max=0.5)
    p1 = torch.where(block.hits == 0, torch.minimum(p1, far), p1)
    p1 = torch.where(block.hits == block.count, torch.maximum(p1, 1 - far), p1)
    b = torch.logit(p0)
    mean = sum_x / block.count.clamp(min=1)
    reach = torch.where(mean.abs() <= 0.3 * block.scale, block.scale, mean)
    w = (torch.logit(p1) - b) / reach
    inside = (block.hits == block.positives) & (block.hits > 0) & (block.hits < block.count)
    cold = (block.count == 0) | inside
    return torch.where(cold, block.prior, b), torch.where(cold, torch.zeros_like(w), w)
