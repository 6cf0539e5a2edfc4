"""The loop around a decomposition: batches in, one iteration after another, log and checkpoints out."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.api import Clock, Context, Levels
from perfsweep.workloads.errors import PerfsweepError
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.data.loading import Feed, Loaded, Mover, Plan, by_data_loader, on_host
from perfsweep.workloads.spd.maths.adversarial_sources import KeptSources
from perfsweep.workloads.spd.maths.decomposition import Decomposition
from perfsweep.workloads.spd.maths.random_draws import Draws
from perfsweep.workloads.spd.maths.sites import Stacks, alone, together, unstack
from perfsweep.workloads.spd.training.targets import Problem
from perfsweep.workloads.spd.training.updates import Updates
from perfsweep.workloads.training.checkpoints import SyncWriter
from perfsweep.workloads.training.garbage_collection import Collector

ALIVE = 0.1  # an importance above this counts as needed


class DivergedError(PerfsweepError):
    """A loss that is no number."""


def needed(lower: Stacks) -> dict[str, Tensor]:
    """How many subcomponents of each module a position needs on average []."""
    return {name: (ci > ALIVE).float().sum(-1).mean() for name, ci in unstack(lower).items()}


def refuse_nan(step: int, row: Mapping[str, float], known: str = "") -> None:
    """Stop a training whose loss is no number, before a checkpoint of it replaces a good one.

    Raises
    ------
    DivergedError
        A loss is no number.
    """
    for name, value in row.items():
        if name.startswith("train/loss/") and not math.isfinite(value):
            raise DivergedError(
                f"{name} is {value} at step {step}{known}: the training has diverged; lower workload.lr and"
                " continue from the last checkpoint with workload.resume"
            )


@dataclass
class EmptyingCollector(Collector):
    """Collections that empty the allocator's cache too.

    The field report empties the allocator's cache and collects afterwards, which leaves what the collection
    frees in the cache. Here it is the other way round, except in the baseline.

    Attributes
    ----------
    reversed_order : empty the cache before collecting, as the naive path does
    """

    reversed_order: bool = False

    def collect(self) -> None:
        """Collect, and give free memory back to the device."""
        if self.reversed_order:
            empty_cache()
        super().collect()
        if not self.reversed_order:
            empty_cache()


def empty_cache() -> None:
    """Give the allocator's free blocks back, where there is a device."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


class Loop(ABC):
    """What is around the arithmetic of an iteration.

    Parameters
    ----------
    levels : of all toggles, for variants; nothing here looks at them
    endings : at whose close everything ends that the training holds

    Attributes
    ----------
    step : iterations done
    total : of the last one []
    evaluate : figures of the decomposition at a step, which whatever sets a training up gives
    decomposition, draws, kept, updates : what is trained, random numbers, sources of persistent terms, and
        the optimiser, which `build` makes
    """

    pinned, non_blocking, workers = False, False, 0
    """Whether batches lie in pinned memory, whether copies are not waited for, and processes that load."""
    evaluate: Callable[[int], Mapping[str, float]]
    decomposition: Decomposition
    draws: Draws
    kept: KeptSources
    updates: Updates

    def __init__(
        self, levels: Levels, config: SpdConfig, context: Context, problem: Problem, endings: ExitStack
    ) -> None:
        self.levels, self.config, self.context, self.endings = levels, config, context, endings
        self.recipe = config.recipe
        self.target, self.spec, self.sites = problem.target, problem.spec, problem.sites
        self.rows, self.held_out = problem.rows, problem.held_out
        self.device, self.dtype = torch.device(context.device.type), getattr(torch, config.dtype)
        self.counts: Counter[str] = Counter()
        self.step, self.total = 0, torch.zeros(())
        self.observed: dict[str, float] = {}
        self.feed = self.fed(problem.taken)
        self.build()
        self.logged_at, self.logged_step = time.perf_counter(), 0
        self.writer, self.collector = self.writing(), self.collecting()
        endings.callback(self.writer.close)
        endings.callback(self.collector.close)

    @abstractmethod
    def build(self) -> None:
        """Make what iterations use."""

    @abstractmethod
    def advance(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """Gradients and update of one iteration; its terms [], and the importances of the last microbatch."""

    @abstractmethod
    def warm_up(self) -> None:
        """Prepare values that were drawn."""

    # Batches.

    def fed(self, start: int) -> Feed:
        """The batches of a training from the number `start` on."""
        plan = Plan(len(self.rows), self.recipe.batch, self.context.seed, self.config.drop_last)
        plan.start = start
        feed = self.moved(self.batches(plan), start)
        self.endings.callback(feed.close)
        return feed

    def batches(self, plan: Plan) -> Iterator[Loaded]:
        """Batches on the host: fetched row by row."""
        config = self.config
        return by_data_loader(self.rows, plan, self.workers, self.pinned, config.iterable, config.sharded)

    def moved(self, batches: Iterator[Loaded], start: int) -> Feed:
        """Batches on the device: copied when they are asked for."""
        return Feed(batches, self.mover(), start)

    def mover(self) -> Mover:
        """What copies batches."""
        return Mover(self.device, self.non_blocking, self.counts, self.dtype)

    def on_device(self, values: np.ndarray) -> Tensor:
        """Rows as an iteration reads them."""
        rows = on_host(self.rows, values).to(self.device)
        return rows.to(self.dtype) if self.rows.vectors else rows

    def first_batch(self) -> Tensor:
        """The first rows of the data, a batch of them."""
        return self.on_device(self.rows.values[: self.recipe.batch])

    def held_out_batches(self) -> list[Tensor]:
        """The first held-out batches, which are few where rows are few."""
        size, values = self.recipe.batch, self.held_out.values
        count = min(self.recipe.eval_batches, max(len(values) // size, 1))
        return [self.on_device(values[i * size : (i + 1) * size]) for i in range(count)]

    def restart_feed(self, taken: int) -> None:
        """Go on with the batch after the first `taken` ones."""
        self.feed.close()
        self.feed = self.fed(taken)

    # One iteration after another, and what is due after each.

    def begin(self, state: Mapping[str, Any] | None, values: Mapping[str, Tensor] | None) -> None:
        """Begin where a checkpoint was taken, with given values, or with a warm-up."""
        if state is not None:
            self.load(state)
        elif values is not None:
            self.decomposition.load(values)
        else:
            self.warm_up()

    def iterate(self, clock: Clock) -> None:
        """Load, compute, update; then log, evaluate, collect and save, each where it is due."""
        with clock.phase("data"):
            fetched = self.feed.fetch()
        with clock.phase("transfer"):
            batch = self.feed.move(fetched)
        lr = self.schedule()
        terms, lower = self.attempt(batch, clock)
        with clock.phase("logging"):
            self.observe({**terms, "total": self.total}, lower)
        self.step += 1
        self.counts["iterations"] += 1
        self.counts["positions"] += batch.numel() if not batch.is_floating_point() else len(batch)
        self.collector.after_iteration(self.counts["iterations"])
        recipe = self.recipe
        if self.step % recipe.log_every == 0:
            with clock.phase("logging"):
                self.log_row(lr)
        if recipe.eval_every and self.step % recipe.eval_every == 0:
            with clock.phase("evaluate"):
                self.context.log(self.evaluate(self.step))
            with clock.phase("gc"):
                self.collector.after_evaluation()
        if recipe.save_every and self.step % recipe.save_every == 0:
            with clock.phase("checkpoint"):
                self.save()

    def schedule(self) -> float:
        """Set the learning rate of the coming iteration, and return it."""
        return self.updates.schedule(self.step)

    def attempt(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """Advance by a batch; where memory runs out, so does the training."""
        return self.advance(batch, clock)

    def uncaptured(self) -> AbstractContextManager[None]:
        """Iterations are done eagerly meanwhile, which they are."""
        return nullcontext()

    def writing(self) -> SyncWriter:
        """What writes checkpoints: the training waits."""
        return SyncWriter()

    def collecting(self) -> EmptyingCollector:
        """When garbage is collected: after each evaluation, the allocator's cache being emptied before it."""
        return EmptyingCollector(every=1, reversed_order=True)

    # What is logged and saved.

    def observe(self, terms: Mapping[str, Tensor], lower: Stacks) -> None:
        """Read every loss and every module's count: each read waits for the device.

        Raises
        ------
        DivergedError
            A loss is no number.
        """
        self.observed = {f"train/loss/{name}": loss.item() for name, loss in terms.items()}
        self.observed |= {f"train/l0/{name}": count.item() for name, count in needed(lower).items()}
        refuse_nan(self.step, self.observed)

    def check_losses(self) -> None:  # noqa: B027 - a variant has something to do
        """Make sure that the last losses are numbers: they have been read already."""

    def row(self, extra: Mapping[str, Tensor]) -> dict[str, float]:
        """The row of the last iteration, with more numbers []."""
        return {**self.observed, **{name: value.item() for name, value in extra.items()}}

    def log_row(self, lr: float) -> None:
        """Log the last iteration."""
        row = self.row(self.updates.gradient_norms())
        now = time.perf_counter()
        speed = {"perf/step_ms": 1e3 * (now - self.logged_at) / max(self.step - self.logged_step, 1)}
        self.logged_at, self.logged_step = now, self.step
        self.context.log({"step": float(self.step), **row, "train/schedules/lr": lr, **speed})

    def save(self) -> None:
        """Save everything that goes on, unless a loss is no number."""
        self.check_losses()
        self.writer.save(self.state(), self.context.scratch_dir / "checkpoint.pt")

    def state(self) -> dict[str, Any]:
        """Values, optimiser, step, random states and position in the data together."""
        return {
            "step": self.step,
            "taken": self.feed.taken,
            "values": self.decomposition.state(),
            "generator": self.draws.generator.get_state(),
            "sources": {name: _by_term(alone, parts) for name, parts in self.sources().items()},
            **self.updates.state(self.decomposition.named_views),
        }

    def sources(self) -> dict[str, dict[str, Any]]:
        """What kinds of adversaries keep, by term."""
        return {"steps": {}, "persistent": self.kept.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken. The feed has been started there already.

        Raises
        ------
        ConfigError
            The state belongs to another architecture.
        """
        self.decomposition.load(state["values"])
        self.updates.load(state, self.decomposition.named_views)
        self.draws.generator.set_state(state["generator"])
        own = partial(together, groups=self.decomposition.groups)
        self.load_sources({name: _by_term(own, parts) for name, parts in state["sources"].items()})
        self.step = self.logged_step = int(state["step"])

    def load_sources(self, sources: Mapping[str, dict[str, Any]]) -> None:
        """Take what kinds of adversaries kept; what only another level keeps is left."""
        self.kept.load(sources["persistent"])


def _by_term(change: Callable[..., Any], parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What a kind of adversary keeps of each term, in another layout."""
    return {part: {term: change(stacks) for term, stacks in terms.items()} for part, terms in parts.items()}
