"""Float64 Newton in centred coordinates, for the pairs that certification does not pass.

Of a latent whose values are large against their spread, b and w cancel: neither the raw gradient nor a step
budget in raw logits sees the direction in which the loss still falls. Here eta = c + v u, with u the
non-zeros less their mean in units of their standard deviation; the silent rows share one u of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import EQUAL, Constants
from perfsweep.workloads.probe1d.maths.blocks import Reason, Solution
from perfsweep.workloads.probe1d.maths.buckets import Bucket, Layout
from perfsweep.workloads.probe1d.maths.derivatives import Derivatives, EventSums
from perfsweep.workloads.probe1d.maths.event_sums import BucketKernel
from perfsweep.workloads.probe1d.maths.newton import (
    NewtonRules,
    NewtonState,
    advance,
    minimum_is_near,
    newton_decrement,
)
from perfsweep.workloads.probe1d.maths.precision import PRECISIONS
from perfsweep.workloads.probe1d.maths.separable import TAIL_LOSS
from perfsweep.workloads.probe1d.maths.sums_by_row import CscEvaluator

FURTHER = 1e-3
"""Share of the decrement's bound to which pairs are polished: where a saturating group of rows still holds a
step back, the decrement sees little of what lies beyond, and a few more steps of few pairs cost nothing."""
COST = 2e-6
"""Loss that a penalty may cost a pair that counts as converged."""
SINGULAR = 1e-14
"""Determinant over the product of the diagonal that float64 still resolves in centred coordinates."""


@dataclass(frozen=True)
class CentredPairs:
    """A list of pairs in centred coordinates, float64 [P, 1] each; `latent` int64 [P] numbers their layout.

    Attributes
    ----------
    pair : index in the grid of all pairs
    count, padding, silent : non-zeros, slots that pad them at u = 0, and rows without a value
    hits, hit_sum, silent_hits : positive rows among non-zeros, their sum of u, and those among silent rows
    centre, spread : x = centre + spread u; `at` is the u of x = 0
    scale, least : root mean square and smallest absolute value of the raw non-zeros
    reach : largest |u| of the non-zeros
    ridge : what the objective multiplies v^2 / 2 with
    told_apart : whether float64 resolves the spread of a latent that is always on
    """

    latent: Tensor
    pair: Tensor
    count: Tensor
    padding: Tensor
    silent: Tensor
    hits: Tensor
    hit_sum: Tensor
    silent_hits: Tensor
    prior: Tensor
    centre: Tensor
    spread: Tensor
    scale: Tensor
    least: Tensor
    reach: Tensor
    ridge: Tensor
    told_apart: Tensor
    rows: int

    def select(self, keep: Tensor) -> CentredPairs:
        """The pairs named by the int64 index `keep`."""
        kept: dict[str, Any] = {
            field.name: getattr(self, field.name).index_select(0, keep)
            for field in fields(self)
            if field.name != "rows"
        }
        return replace(self, **kept)

    @property
    def mixed(self) -> Tensor:
        """Whether non-zeros have both labels, bool."""
        return (self.hits > 0) & (self.hits < self.count)

    @property
    def at(self) -> Tensor:
        """Centred place of silent rows."""
        return -self.centre / self.spread

    def centred(self, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """(c, v) of raw parameters."""
        return b + w * self.centre, w * self.spread

    def raw(self, c: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """(b, w) of centred parameters."""
        return c + v * self.at, v / self.spread

    def derivatives(self, c: Tensor, v: Tensor, sums: EventSums) -> tuple[Derivatives, Derivatives]:
        """Gradient and Hessian of the loss with respect to (c, v), and what may be left of the latter.

        Silent rows of one label are a tail: their curvature ends where mixed events may still have loss.
        """
        assert sums.m1 is not None
        at, unit = self.at, 1.0 / self.rows
        b = c + v * at
        mu0, at_centre = torch.sigmoid(b), torch.sigmoid(c)
        s0 = self.silent * mu0 * torch.sigmoid(-b)
        group = self.silent * mu0 - self.silent_hits
        # Padding lies at u = 0: it adds to the plain sums alone.
        g0 = (sums.m0 - self.padding * at_centre - self.hits + group) * unit
        g1 = (sums.m1 - self.hit_sum + group * at) * unit
        h0 = sums.a0 - self.padding * at_centre * torch.sigmoid(-c)
        one_label = (self.silent_hits == 0) | (self.silent_hits == self.silent)
        tail = self.mixed & one_label & (sums.a2 > EQUAL**2 * sums.a0)  # equal events do not tell v

        def with_silent(own: Tensor) -> Derivatives:
            hessian = (h0 + own, sums.a1 + own * at, sums.a2 + own * at * at)
            return Derivatives(None, g0, g1, *(part * unit for part in hessian))

        return with_silent(s0), with_silent(torch.where(tail, 0.0, s0))

    def penalised(self, loss: Derivatives, v: Tensor) -> Derivatives:
        """Gradient and Hessian of the objective from those of the loss."""
        return replace(loss, g1=loss.g1 + self.ridge * v, h2=loss.h2 + self.ridge)

    def raw_gradient(self, grad: Derivatives) -> Tensor:
        """G, as certification measures it: the larger part of the gradient with respect to (b, scale w)."""
        return torch.maximum(grad.g0.abs(), self._slope(grad).abs() / self.scale)

    def _slope(self, grad: Derivatives) -> Tensor:
        """Derivative with respect to w at fixed b."""
        return grad.g1 * self.spread + grad.g0 * self.centre

    def bounded(
        self,
        parameters: tuple[Tensor, Tensor],
        sums: EventSums,
        grad: Derivatives,
        decrement: Tensor,
        limits: tuple[float, float],
    ) -> Tensor:
        """Whether twice the `decrement` bounds the loss that is left, by `limits`: of a slope, and of a loss.

        Of non-zeros of one label see `separable.tail_is_paid`. Silent rows of one label only ever gain by a
        step that the others ask for.
        """
        assert sums.loss is not None
        (c, v), (tol, loss) = parameters, limits
        own = sums.loss - self.padding * softplus(c) - self.hits * c - self.hit_sum * v
        one_label = (self.silent_hits == 0) | (self.silent_hits == self.silent)
        reach = torch.maximum(self.reach, torch.where(one_label, 0.0, self.at.abs()))
        slope = self._slope(grad).abs() <= tol * self.least
        near = torch.where(self.mixed, minimum_is_near(grad, reach, decrement), slope)
        return near | (own <= loss * self.rows)


class Polisher:
    """Solves single pairs from their values in a solution, and stores what it finds.

    Parameters
    ----------
    constants : sums of all latents in the order that pairs are numbered in, label sums included
    layout : makes a layout of all events, and the rank in it of each latent of that order
    kernel : float64 sums over a bucket
    """

    def __init__(
        self,
        constants: Constants,
        layout: Callable[[], tuple[Layout, Tensor]],
        kernel: BucketKernel,
        solution: Solution,
        counts: Counts,
        rules: NewtonRules,
    ) -> None:
        self.constants, self.layout, self.kernel = constants, layout, kernel
        self.solution, self.counts = solution, counts
        self.rules = replace(rules, decrement=rules.decrement * FURTHER, singular=SINGULAR)

    def polish(self, pair: Tensor) -> None:
        """Solve the pairs with the given indices, int64 [P]; failed pairs are marked as out of budget.

        So are latents that are always on and whose values float64 does not tell apart.
        """
        pairs, evaluator = self._centred(pair)
        c, v = pairs.centred(self.solution.b[pairs.pair], self.solution.w[pairs.pair])
        lost = ~(torch.isfinite(c) & torch.isfinite(v))
        c, v = torch.where(lost, pairs.prior, c), torch.where(lost, 0.0, v)
        state = NewtonState.start(c, v, torch.zeros_like(lost))
        for _ in range(self.rules.max_iter):
            state, minimal = self._pass(pairs, evaluator, state)
            keep = (~state.done).squeeze(1).nonzero().squeeze(1)
            if keep.numel() < state.done.numel():
                ended = state.done.squeeze(1).nonzero().squeeze(1)
                self._store(pairs.select(ended), state.select(ended), minimal[ended])
                pairs, state = pairs.select(keep), state.select(keep)
            if not keep.numel():
                return
        self._store(pairs, state, state.done)

    def _pass(
        self, pairs: CentredPairs, evaluator: CscEvaluator, state: NewtonState
    ) -> tuple[NewtonState, Tensor]:
        """The next state, and pairs where the loss alone is at its minimum too; pairs that are done stay."""
        self.counts.add("pair_evaluations", state.b.numel())
        sums = evaluator.list_sums(pairs.latent, state.b, state.w)
        loss, left = pairs.derivatives(state.b, state.w, sums)
        grad = pairs.penalised(loss, state.w)
        at, tol = (state.b, state.w), self.rules.tol
        held = pairs.penalised(left, state.w)
        decrement = newton_decrement(held)
        paid = decrement <= self.rules.decrement
        paid &= pairs.bounded(at, sums, held, decrement, (tol, TAIL_LOSS))
        # Equal events have no curvature of their own along v, and no slope either. In a tail, twice the
        # decrement is left.
        left = replace(left, h2=left.h2.clamp(min=1e-100))
        decrement = newton_decrement(left)
        minimal = (2 * decrement <= COST) & pairs.bounded(at, sums, left, decrement, (tol, COST))
        unit = torch.ones_like(state.b)
        state, _ = advance(None, state, grad, unit, pairs.raw_gradient(grad), paid, self.rules)
        return state, minimal

    def _store(self, pairs: CentredPairs, state: NewtonState, minimal: Tensor) -> None:
        b, w = pairs.raw(state.b, state.w)
        reason = torch.where(minimal, int(Reason.CONVERGED), int(Reason.PENALISED))
        reason = torch.where(state.done & pairs.told_apart, reason, int(Reason.BUDGET))
        evals = self.solution.evals[pairs.pair] + state.evals
        self.solution.store(pairs.pair, b=b, w=w, gmax=state.gmax, reason=reason, evals=evals)

    def _centred(self, pair: Tensor) -> tuple[CentredPairs, CscEvaluator]:
        """The pairs in the order of a layout of their latents alone, and what sums over that."""
        constants = self.constants
        layout, rank = self.layout()
        classes = constants.positives.numel()
        pair = pair[torch.argsort(rank[pair // classes], stable=True)]
        latent, column = pair // classes, (pair % classes).unsqueeze(1)
        ranks, number = torch.unique(rank[latent], return_inverse=True)
        of_rank = torch.empty_like(ranks).index_copy_(0, number, latent)
        small, centre, spread, least, reach, same = centred_layout(layout, ranks, constants.count[of_rank])
        count, hits = constants.count[latent, None], constants.hits[latent].gather(1, column)
        away = constants.hit_away[latent].gather(1, column)
        positives = constants.positives[column]
        centre, spread = centre[number, None], spread[number, None]
        silent = constants.rows - count
        pairs = CentredPairs(
            latent=number,
            pair=pair.unsqueeze(1),
            count=count,
            padding=small.slots[number, None] - count,
            silent=silent,
            hits=hits,
            hit_sum=(away + (constants.mean[latent, None] - centre) * hits) / spread,
            silent_hits=positives - hits,
            prior=constants.prior[column],
            centre=centre,
            spread=spread,
            scale=constants.scale[latent, None],
            least=least[number, None],
            reach=reach[number, None],
            ridge=constants.ridge_w[latent, None] / spread.square(),
            told_apart=~same[number, None] | (silent > 0),
            rows=constants.rows,
        )
        return pairs, CscEvaluator(small, self.kernel, PRECISIONS["f64"], self.counts)


def centred_layout(
    layout: Layout, ranks: Tensor, counts: Tensor
) -> tuple[Layout, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Buckets of the centred events of some ascending `ranks`, with `counts` of non-zeros, float64.

    Also returns mean, standard deviation (the absolute mean where events are equal), smallest absolute value
    and largest |u| of each rank's non-zeros, and which ranks have events that only look equal in float64.
    """
    buckets, parts, first = [], [], 0
    slots = torch.zeros_like(counts)
    for bucket in layout.buckets:
        own = ranks[(ranks >= bucket.first) & (ranks < bucket.last)] - bucket.first
        if not own.numel():
            continue
        last = first + own.numel()
        u, *part = _centre(bucket.x.index_select(0, own).double(), counts[first:last, None])
        buckets.append(Bucket(first, last, u))
        parts.append(part)
        slots[first:last] = bucket.width
        first = last
    centre, spread, least, reach, same = (torch.cat(part) for part in zip(*parts, strict=True))
    return Layout(ranks, slots, tuple(buckets), 0), centre, spread, least, reach, same


def _centre(x: Tensor, count: Tensor) -> tuple[Tensor, ...]:
    inside = torch.arange(x.shape[1], device=x.device) < count
    centre = torch.where(inside, x, 0.0).sum(1, keepdim=True) / count
    away = torch.where(inside, x - centre, 0.0)
    spread = (away.square().sum(1, keepdim=True) / count).sqrt()
    equal = spread <= EQUAL * centre.abs()
    same = equal.squeeze(1) & (
        torch.where(inside, away, -torch.inf).amax(1) > torch.where(inside, away, torch.inf).amin(1)
    )
    spread = torch.where(equal, centre.abs(), spread)
    least = torch.where(inside, x.abs(), torch.inf).amin(1)
    u = (away / spread).contiguous()
    return u, centre.squeeze(1), spread.squeeze(1), least, u.abs().amax(1), same
