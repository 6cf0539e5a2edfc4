"""The whole training loop: one iteration at a time, with logging, evaluation, collection and saving."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.api import Clock
from perfsweep.workloads.spd.data.loading import Feed
from perfsweep.workloads.spd.maths.components import Deltas, Operands
from perfsweep.workloads.spd.maths.decomposition import Decomposition
from perfsweep.workloads.spd.maths.losses import annealed_p
from perfsweep.workloads.spd.maths.masked_passes import Moment
from perfsweep.workloads.spd.maths.objective import Objective
from perfsweep.workloads.spd.maths.sites import Names, Stacks, alone, together
from perfsweep.workloads.spd.presets import Recipe
from perfsweep.workloads.spd.training.collector import EmptyingCollector
from perfsweep.workloads.spd.training.metrics import EagerMetrics
from perfsweep.workloads.spd.training.profiling import NoProfiler
from perfsweep.workloads.spd.training.updates import Updates
from perfsweep.workloads.training.checkpoints import SyncWriter


@dataclass
class Parts:
    """What a training is put together from; `build` chooses each part.

    Attributes
    ----------
    evaluate : figures of the decomposition at a step
    microbatches : pieces of a batch, one after the other
    multiplies_deltas : masked passes multiply with D instead of folding it
    p_tensor : the exponent as a tensor [], where compiled code or a graph must not be made again for each
        value
    frees_early : nothing of a microbatch is kept once its loss is there
    """

    recipe: Recipe
    decomposition: Decomposition
    objective: Objective
    deltas: Deltas
    updates: Updates
    feed: Feed
    metrics: EagerMetrics
    evaluate: Callable[[int], Mapping[str, float]]
    collector: EmptyingCollector
    writer: SyncWriter
    profiler: NoProfiler
    counts: Counter[str]
    log: Callable[[Mapping[str, float]], None]
    checkpoint_file: Path
    microbatches: int = 1
    multiplies_deltas: bool = True
    p_tensor: Tensor | None = None
    frees_early: bool = False


Advance = Callable[[Tensor, Clock], tuple[dict[str, Tensor], Stacks]]
"""Does the arithmetic of an iteration; see `Training.advance`."""


class Training:
    """The loop around the objective."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.step = 0
        self.total = torch.zeros(())
        self._held: Moment | None = None
        self._advance: Advance = self.advance
        self.uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext
        self._needs_deltas = parts.multiplies_deltas or any(
            loss.kind == "faithfulness" for loss in parts.recipe.losses
        )
        self._logged_at, self._logged_step = time.perf_counter(), 0

    def replace_advance(
        self, advance: Advance, uncaptured: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Have the arithmetic of an iteration done by a captured graph of it, but for while `uncaptured`."""
        self._advance, self.uncaptured = advance, uncaptured

    def iterate(self, clock: Clock) -> None:
        """One iteration, and the periodic work that is due after it."""
        parts = self.parts
        parts.profiler.iteration_starts()
        with clock.phase("data"):
            fetched = parts.feed.fetch()
        with clock.phase("transfer"):
            batch = parts.feed.move(fetched)
        lr = self.schedule()
        terms, lower = parts.collector.guard(lambda: self._advance(batch, clock))
        with clock.phase("logging"):
            parts.metrics.observe(self.step, {**terms, "total": self.total}, lower)
        self.step += 1
        parts.counts["iterations"] += 1
        parts.counts["positions"] += batch.numel() if not batch.is_floating_point() else len(batch)
        parts.collector.after_iteration(parts.counts["iterations"])
        self._periodic(clock, lr)
        parts.profiler.iteration_ends()

    def schedule(self) -> float:
        """Set exponent and learning rate of the coming iteration, and return the latter."""
        parts = self.parts
        if parts.p_tensor is not None:
            parts.p_tensor.fill_(annealed_p(parts.recipe, self.step))
        parts.objective.reconstruction.iteration = self.step
        return parts.updates.schedule(self.step)

    def _periodic(self, clock: Clock, lr: float) -> None:
        recipe = self.parts.recipe
        if self.step % recipe.log_every == 0:
            with clock.phase("logging"):
                self.log_row(lr)
        if recipe.eval_every and self.step % recipe.eval_every == 0:
            with clock.phase("evaluate"):
                self.parts.log(self.parts.evaluate(self.step))
            with clock.phase("gc"):
                self.parts.collector.after_evaluation()
        if recipe.save_every and self.step % recipe.save_every == 0:
            with clock.phase("checkpoint"):
                self.save()

    def log_row(self, lr: float) -> None:
        """Log the last iteration."""
        parts = self.parts
        row = parts.metrics.row(self.step, parts.updates.gradient_norms())
        now = time.perf_counter()
        iterations = max(self.step - self._logged_step, 1)
        speed = {"perf/step_ms": 1e3 * (now - self._logged_at) / iterations}
        self._logged_at, self._logged_step = now, self.step
        parts.log({"step": float(self.step), **row, "train/schedules/lr": lr, **speed})

    def advance(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """Gradients and update of one iteration; its terms [], and the importances of the last microbatch."""
        self.parts.updates.zero()
        found = self.gradients(batch, clock)
        with clock.phase("optimizer"):
            self.parts.updates.apply()
        self.parts.objective.reconstruction.after_backward()
        return found

    def gradients(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """Add up the gradients of all microbatches."""
        parts, pieces = self.parts, self.parts.microbatches
        with clock.phase("deltas"):
            deltas = parts.deltas.all(parts.decomposition.operands()) if self._needs_deltas else None
        operands = parts.decomposition.operands(deltas if parts.multiplies_deltas else None)
        p = annealed_p(parts.recipe, self.step) if parts.p_tensor is None else parts.p_tensor
        sums: dict[str, Tensor] = {}
        lower: Stacks = {}
        rows = len(batch) // pieces
        totals = []
        for number in range(pieces):
            piece = slice(number * rows, (number + 1) * rows) if pieces > 1 else slice(None)
            parts.objective.reconstruction.draws.begin(piece)
            terms, total, lower = self._microbatch(batch[piece], operands, deltas, p, clock)
            with clock.phase("backward"):
                # All microbatches share the deltas' graph, so only the last may take it apart.
                parts.updates.backward(total / pieces, retain=number < pieces - 1 and deltas is not None)
            totals.append(total.detach())
            sums = {name: sums.get(name, 0) + term.detach() / pieces for name, term in terms.items()}
        self.total = torch.stack(totals).mean() if pieces > 1 else totals[0]
        return sums, lower

    def _microbatch(
        self,
        batch: Tensor,
        operands: Mapping[str, Operands],
        deltas: Mapping[str, Tensor] | None,
        p: float | Tensor,
        clock: Clock,
    ) -> tuple[dict[str, Tensor], Tensor, Stacks]:
        parts = self.parts
        if self._held is not None:
            parts.counts["held_bytes"] = max(parts.counts["held_bytes"], held_bytes(self._held))
        moment = parts.objective.moment(batch, operands, clock, parts.objective.reconstruction.draws)
        terms = parts.objective.terms(moment, deltas, p, clock)
        lower = {names: ci.detach() for names, ci in moment.lower.items()}
        if not parts.frees_early:
            # What a loop's local names do: they hold on until the next iteration overwrites them.
            self._held = moment
        return terms, parts.objective.total(terms), lower

    def save(self) -> None:
        """Save everything that goes on, unless a loss is no number."""
        self.parts.metrics.check(self.step)
        self.parts.writer.save(self.state(), self.parts.checkpoint_file)

    def state(self) -> dict[str, Any]:
        """Values, optimiser, step, random states and position in the data together."""
        parts = self.parts
        reconstruction = parts.objective.reconstruction
        return {
            "step": self.step,
            "taken": parts.feed.taken,
            "values": parts.decomposition.state(),
            "generator": reconstruction.draws.generator.get_state(),
            "sources": {
                name: {part: _by_term(alone, terms) for part, terms in source.state().items()}
                for name, source in (("steps", reconstruction.steps), ("persistent", reconstruction.kept))
            },
            **parts.updates.state(parts.decomposition.named_views),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken. The feed has been started there already.

        Raises
        ------
        ConfigError
            The state belongs to another architecture.
        """
        parts = self.parts
        reconstruction = parts.objective.reconstruction
        parts.decomposition.load(state["values"])
        parts.updates.load(state, parts.decomposition.named_views)
        reconstruction.draws.generator.set_state(state["generator"])
        own = partial(together, groups=parts.decomposition.groups)
        for name, source in (("steps", reconstruction.steps), ("persistent", reconstruction.kept)):
            source.load({part: _by_term(own, terms) for part, terms in state["sources"][name].items()})
        self.step = self._logged_step = int(state["step"])


def _by_term(change: Callable[..., dict[Names, Any]], terms: Mapping[str, Any]) -> dict[str, Any]:
    """What a kind of adversary keeps of each term, in another layout."""
    return {term: change(stacks) for term, stacks in terms.items()}


def held_bytes(moment: Moment) -> int:
    """Bytes of a microbatch's outputs and importances that something still refers to."""
    tensors = [*moment.inputs.values(), *moment.lower.values(), *moment.upper.values()]
    tensors += [value for value in vars(moment.divergence).values() if isinstance(value, Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
