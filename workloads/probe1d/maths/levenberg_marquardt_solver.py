"""The report-time solver and its later form: damped Newton passes over one slab of classes at a time.

Sources: field report 000 and the solver it describes (OSU-NLP-Group/saev), restated from their behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.maths.blocks import Block
from perfsweep.workloads.probe1d.maths.derivatives import Derivatives, Evaluator, combine, scaled_gradient
from perfsweep.workloads.probe1d.maths.levenberg_marquardt import (
    DampingRules,
    DampingState,
    Retries,
    Step,
    adapt_damping,
    step_metric,
)
from perfsweep.workloads.probe1d.maths.pass_log import DeviceLog, PassFacts, WaitingLog
from perfsweep.workloads.probe1d.maths.pass_timing import NoHook
from perfsweep.workloads.probe1d.maths.solution import Reason, Solution


@dataclass(frozen=True)
class DampingOptions:
    """Toggles of the passes.

    `scaled`: activity and stop by the scaled gradient; `skip_zero` off, exact or tol; `freeze_after` failures
    in a row (0: never); `compact`: leave rows out once all their pairs have converged.
    """

    scaled: bool
    skip_zero: str = "off"
    freeze_after: int = 0
    compact: bool = False
    tol: float = 1e-6


@dataclass
class Bookkeeping:
    """Per pair of the block in work, [R, c]: its state and how often it was evaluated."""

    frozen: Tensor
    evals: Tensor
    gmax: Tensor

    @classmethod
    def start(cls, like: Tensor) -> Bookkeeping:
        """Before the first pass, in the shape of `like`."""
        no = torch.zeros_like(like, dtype=torch.bool)
        return cls(no, torch.zeros_like(like, dtype=torch.int32), torch.zeros_like(like))

    def select(self, keep: Tensor) -> Bookkeeping:
        """The rows named by `keep`."""
        return Bookkeeping(self.frozen[keep], self.evals[keep], self.gmax[keep])


class LevenbergMarquardtSolver:
    """Runs `rules` on one slab until its stop test holds or `max_iter` passes have ended."""

    def __init__(
        self,
        rules: DampingRules,
        options: DampingOptions,
        evaluator: Evaluator,
        metric_scale: Tensor,
        log: WaitingLog | DeviceLog,
        hook: NoHook,
        counts: Counts,
        solution: Solution,
        phase: Callable[[str], AbstractContextManager[Any]] = NullClock.phase,
    ) -> None:
        self.phase = phase
        self.rules, self.options, self.evaluator, self.metric_scale = rules, options, evaluator, metric_scale
        self.log, self.hook, self.counts, self.solution = log, hook, counts, solution
        self.retries = Retries(rules, log.any_left)

    def solve(self, number: int, block: Block, b: Tensor, w: Tensor) -> Iterator[None]:
        """Passes over a slab starting from (b, w); yields before each."""
        state, notes = DampingState.start(b, w), Bookkeeping.start(b)
        over = torch.zeros((), dtype=torch.bool, device=b.device)
        tally = _Tally(b.device)
        self.log.begin(self.rules.max_iter, b.device)
        for _ in range(self.rules.max_iter):
            yield
            self.hook.pass_begins(number)
            over, stopped = self._pass(block, state, notes, over, tally)
            if stopped:
                break
            if self.options.compact:
                block, state, notes = self._compact(block, state, notes)
                if not block.latent.numel():
                    break
        self._store(block, state, notes)
        self.hook.slab_ends()
        self.log.finish()
        tally.publish(self.counts)
        self.counts.add("slabs")

    def _pass(
        self, block: Block, state: DampingState, notes: Bookkeeping, over: Tensor, tally: _Tally
    ) -> tuple[Tensor, bool]:
        """Evaluate, step and log; returns whether the slab is over, on the device, and what the host knows.

        The host may learn it some passes late: once `over`, everything is masked and nothing moves.
        """
        unit = 1.0 if self.rules.sums else 1.0 / block.rows
        with self.phase("statistics"):
            grad = self._evaluate(block, state, unit)
        with self.phase("lm_step"):
            gradient = scaled_gradient(block, grad.g0, grad.g1) / (unit * block.rows)
            notes.evals += ~over
            notes.gmax = torch.where(over, notes.gmax, gradient)
            over = over | self._stops_before_step(gradient, notes)
            wanted, skipped = self._wanted(block, grad, gradient, notes)
            step = self._step(block, state, grad, wanted & ~over)
            self._freeze(state, step, notes)
            tally.see(step.lam, block.count, skipped)
        with self.phase("log"):
            self.log.write(PassFacts(grad.loss, grad.g0, grad.g1, step.lam, step.failed))
            over = over | self._stops_after_step(grad, step)
            stopped = self.log.stopped(over)
        self.counts.add("slab_passes")
        self.counts.add(f"{self.rules.name}_passes")
        return over, stopped

    def _evaluate(self, block: Block, state: DampingState, unit: float) -> Derivatives:
        self.counts.add("pair_evaluations", state.b.numel())
        sums = self.evaluator.sums(block, state.b, state.w)
        return combine(block, state.b, state.w, sums, unit, self.rules.clip)

    def _stops_before_step(self, gradient: Tensor, notes: Bookkeeping) -> Tensor:
        """The later form and the repaired one look at the scaled gradient of the point they stand on."""
        if not self.options.scaled and self.rules.sums:
            return torch.zeros((), dtype=torch.bool, device=gradient.device)
        self.counts.add("scaled_tests", self.options.scaled)
        return ((gradient <= self.options.tol) | notes.frozen).all()

    def _stops_after_step(self, grad: Derivatives, step: Step) -> Tensor:
        """The report-time test: raw gradient and step, on sums, all pairs at once. It is out of reach."""
        if self.options.scaled or not self.rules.sums:
            return torch.zeros((), dtype=torch.bool, device=grad.g0.device)
        steepest = torch.maximum(grad.g0.abs(), grad.g1.abs()).max()
        longest = torch.maximum(step.db.abs(), step.dw.abs()).max()
        return (steepest < self.rules.tol) & (longest < self.rules.tol)

    def _wanted(
        self, block: Block, grad: Derivatives, gradient: Tensor, notes: Bookkeeping
    ) -> tuple[Tensor, Tensor | None]:
        """Pairs that take part in the step, and those left out for want of a gradient."""
        wanted = ~notes.frozen
        if self.rules.pin_dead:
            wanted = wanted & (block.count > 0)
        if self.rules.skip_small or self.options.compact:
            small = gradient if self.options.scaled else torch.maximum(grad.g0.abs(), grad.g1.abs())
            wanted = wanted & (small > self.options.tol)
        if self.options.skip_zero == "off":
            return wanted, None
        idle = (block.count == 0) | ((grad.g0 == 0) & (grad.g1 == 0))
        if self.options.skip_zero == "tol":
            idle = idle | (gradient <= self.options.tol)
        return wanted & ~idle, wanted & idle

    def _step(self, block: Block, state: DampingState, grad: Derivatives, wanted: Tensor) -> Step:
        """Adapt the damping, find a step for every wanted pair, and take it, uphill or not."""
        assert grad.loss is not None
        lam = adapt_damping(state, grad.loss, ignore_noise=self.options.scaled and not self.rules.sums)
        metric = step_metric(
            self.rules, grad, self.metric_scale.to(lam.dtype).index_select(0, block.latent).unsqueeze(1)
        )
        step, tries = self.retries(grad, lam, metric, wanted)
        self.counts.add("retries", max(tries - 1, 0))
        state.b = state.b - step.db
        state.w = state.w - step.dw
        state.lam = torch.where(wanted, step.lam, state.lam)
        # A pair that was left out predicts nothing: its next gain ratio must not count against its damping.
        state.predicted = torch.where(wanted, step.predicted, torch.full_like(lam, torch.nan))
        state.loss, state.clipped = grad.loss, step.clipped
        return step

    def _freeze(self, state: DampingState, step: Step, notes: Bookkeeping) -> None:
        if not self.options.freeze_after:
            return
        state.failures = torch.where(step.failed, state.failures + 1, torch.zeros_like(state.failures))
        notes.frozen = notes.frozen | (state.failures >= self.options.freeze_after)

    def _compact(
        self, block: Block, state: DampingState, notes: Bookkeeping
    ) -> tuple[Block, DampingState, Bookkeeping]:
        """Store and drop rows none of whose pairs is still open."""
        still = (notes.gmax > self.options.tol) & ~notes.frozen
        if self.rules.pin_dead:
            still = still & (block.count > 0)
        keep = still.any(1).nonzero().squeeze(1)
        self.counts.add("host_syncs")
        gone = notes.evals.shape[0] - keep.numel()
        if not gone:
            return block, state, notes
        self._store(block, state, notes)
        self.counts.add("compacted_pairs", gone * notes.evals.shape[1])
        return block.select(keep), state.select(keep), notes.select(keep)

    def _store(self, block: Block, state: DampingState, notes: Bookkeeping) -> None:
        reason = torch.full_like(notes.evals, Reason.BUDGET)
        reason[notes.gmax <= self.options.tol] = Reason.CONVERGED
        reason[notes.frozen] = Reason.FROZEN
        reason[(block.count == 0).expand_as(reason)] = Reason.DEAD
        if self.options.freeze_after:
            self.counts.add("frozen_pairs", self.counts.read(notes.frozen.sum()))
        self.solution.store(
            block.pair, b=state.b, w=state.w, evals=notes.evals, gmax=notes.gmax, reason=reason
        )


class _Tally:
    """What a slab's counters need of every pass, kept on the device until the slab ends."""

    def __init__(self, device: torch.device) -> None:
        self.lam = torch.zeros(2, dtype=torch.float64, device=device)
        self.skipped = torch.zeros((), dtype=torch.float64, device=device)

    def see(self, lam: Tensor, count: Tensor, skipped: Tensor | None) -> None:
        """Largest damping of dead and of live pairs, and how many pairs were skipped."""
        dead = (count == 0).expand_as(lam)
        zero = torch.zeros_like(lam)
        now = torch.stack([torch.where(dead, lam, zero).max(), torch.where(dead, zero, lam).max()])
        self.lam = torch.maximum(self.lam, now.double())
        if skipped is not None:
            self.skipped = self.skipped + skipped.sum()

    def publish(self, counts: Counts) -> None:
        """Add the slab to the counts: one wait."""
        dead, live, skipped = counts.read_all(torch.cat([self.lam, self.skipped.unsqueeze(0)]))
        counts.top("lambda_max_dead", dead)
        counts.top("lambda_max_live", live)
        counts.top("lambda_max", max(dead, live))
        counts.add("skipped_zero_grad", skipped)
