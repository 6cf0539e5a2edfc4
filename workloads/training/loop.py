"""A training loop with the shared toggles: a subclass declares what is trained, not how.

One iteration loads a batch, runs it forwards and backwards, and updates. At given intervals the loop also
evaluates, collects garbage and saves. The toggles are implemented in the other modules of this package.
Evidence is one loss for each iteration, the gradient of the first batch, and the parameters at the end.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from perfsweep.workloads.api import (
    Check,
    Clock,
    Context,
    Evidence,
    Levels,
    NullClock,
    Replayable,
    Toggle,
    Workload,
)
from perfsweep.workloads.errors import ConfigError, ContractError
from perfsweep.workloads.training import batches, checkpoints, loading, precision, sources
from perfsweep.workloads.training.batches import Place, Portion
from perfsweep.workloads.training.compilation import compile_model, recompute
from perfsweep.workloads.training.evaluation import Evaluation, LateLosses, Row
from perfsweep.workloads.training.garbage_collection import POLICIES, Collector
from perfsweep.workloads.training.loading import KeptBatches, repeated
from perfsweep.workloads.training.parts import ACTS_ON, Parts
from perfsweep.workloads.training.replicas import own_device, replicas_of
from perfsweep.workloads.training.toggles import CHECKS, DATA, NAMES, shared_toggles
from perfsweep.workloads.training.updates import Schedule, clipping_of, optimizer_of

OFF: Levels = {toggle.name: toggle.levels[0].value for toggle in (*shared_toggles(*NAMES), DATA)} | {
    "gc": "automatic"
}
"""Levels of the toggles that a workload does not declare."""

COUNTED = (
    *("iterations", "examples", "micro_steps", "worker_batches", "pinned_batches", "unwaited_copies"),
    *("prefetched_batches", "kept_batches", "ranks"),
)


@dataclass
class Config:
    """The fields that every training needs; a subclass adds its own."""

    batch_size: int = 64


class Training(Workload):
    """A training loop with the shared toggles; a subclass has a `Config` with `batch_size`, and `build`."""

    Config: ClassVar[type] = Config
    toggles: ClassVar[tuple[Toggle, ...]] = shared_toggles()
    on_request: ClassVar[tuple[Toggle, ...]] = (*Workload.on_request, DATA)
    checks: ClassVar[tuple[Check, ...]] = CHECKS
    shape = "steps"
    unit = "example"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "batch_size" not in {one.name for one in fields(cls.Config)}:
            raise ContractError(
                f"{cls.__module__}:{cls.__qualname__}: Config needs a field batch_size, rows of an iteration"
            )
        if cls.build is Training.build:
            raise ContractError(
                f"{cls.__module__}:{cls.__qualname__}: build() is missing; it returns the Parts that are"
                " trained"
            )

    def __init__(self) -> None:
        # Whatever must be closed is added once it has started, so that `close` works after half a setup too.
        self._endings = contextlib.ExitStack()

    def build(self, config: Any, levels: Levels, context: Context) -> Parts:
        """Return what is trained. torch's generator is seeded; `levels` are for toggles of your own."""
        raise ContractError(f"{type(self).__name__} does not define build")

    def setup(self, config: Any, levels: Levels, context: Context) -> None:
        """Build the parts, and choose the code path of each toggle: `step` never reads a level."""
        self.config, self.context, self.levels = config, context, {**OFF, **levels}
        self.device = own_device(context)
        self.counts = Counter[str]()
        self.iteration = 0  # of the whole training, across resumptions
        self._place = Place()
        self._replicas = replicas_of(self.levels, context)
        precision.set_tf32(self.levels["tf32"] == "on", self._endings)
        torch.manual_seed(context.seed)
        self._parts = self.build(config, levels, context)
        self._refuse_levels_without_parts()
        self._start_loading()
        self._endings.callback(self._stop_loading)
        self._choose_paths()
        self._begin_periodic_work()
        self._first_gradient: Tensor | None = None

    def prepare_evidence(self) -> None:
        """Have convolutions follow the toggle `tf32` too, and compute the first gradient."""
        precision.set_tf32(self.levels["tf32"] == "on", self._endings, strict=True)
        self._first_gradient = self._gradient()

    def _refuse_levels_without_parts(self) -> None:
        for toggle, part in ACTS_ON.items():
            if self.levels[toggle] != OFF[toggle] and not getattr(self._parts, part):
                raise ConfigError(
                    f"toggles.{toggle}={self.levels[toggle]} changes nothing: let build() name"
                    f" Parts({part}=...)"
                )

    def _start_loading(self) -> None:
        """Load from the current place on; called before the device is used: workers must not inherit it."""
        levels, parts = self.levels, self._parts
        pinned, workers = levels["pin_memory"] == "on", int(levels["num_workers"])
        size = self._replicas.shared_rows(int(self.config.batch_size), parts)
        seed, share = self.context.seed, self._replicas.share
        source = sources.source_of(parts, size, seed, share, workers=workers, pinned=pinned)
        move = loading.Mover(self.device, levels["non_blocking"] == "on", self.counts)

        def to_device(portion: Portion) -> Portion:
            return portion._replace(batch=move(portion.batch.values, portion.batch.loaded_by))

        placed = loading.endless(source, self._place)
        if levels["data"] == "cached":
            placed = repeated(placed, KeptBatches(lambda one: batches.tensors(one[0].values), self.counts))
        self._portions = map(to_device, batches.portions(placed, parts.accumulate))
        if levels["prefetch"] == "stream":
            self._portions = loading.ahead(
                self._portions, self.device, self.counts, lambda portion: batches.tensors(portion.batch)
            )

    def _stop_loading(self) -> None:
        del self._portions  # the last reference: worker processes end with it

    def _choose_paths(self) -> None:
        levels, parts = self.levels, self._parts
        if levels["grad_checkpointing"] == "on":
            recompute(parts.blocks)
        self.model = parts.model.to(self.device)
        replica, whole = self._replicas.wrap(self.model, self.device), self._replicas.share.world == 1
        self._forward = compile_model(replica, str(levels["compile"]), fullgraph=parts.fullgraph and whole)
        groups = [{key: group[key] for key in group if key != "clip_norm"} for group in parts.groups]
        trained = groups or self.model.parameters()
        self._optimizer = optimizer_of(parts.optimizer, trained, levels["optimizer"])
        self._schedule = Schedule(parts, self._optimizer)
        self._clip = clipping_of(parts, self.model)
        self._autocast, self._scaler = precision.autocast_of(str(levels["amp"]), parts.autocast, self.device)
        self._drop_gradients = levels["zero_grad"] == "none"
        size = levels["micro_batch"]
        self._pieces = loading.whole if size == "all" else loading.pieces_of(int(size))

    def _begin_periodic_work(self) -> None:
        parts, levels = self._parts, self.levels
        self._losses = LateLosses()
        self._endings.callback(self._log_last)
        self._collector = Collector(**POLICIES[str(levels["gc"])])
        self._endings.callback(self._collector.close)
        self._writer = checkpoints.WRITERS[str(levels["checkpoint"])]()
        self._endings.callback(self._writer.close)
        # A collection at every tenth evaluation is periodic work too: a region without it would be too fast.
        self.cadence = math.lcm(
            parts.evaluate_every * (self._collector.every or 1) or 1, parts.save_every or 1
        )
        self._evaluation = Evaluation(parts, self.device)
        self._figures = self._evaluate()

    def step(self, clock: Clock) -> None:
        """One update, from one batch or from `Parts.accumulate` batches, and periodic work that is due."""
        self._load(clock)
        with clock.phase("optimizer"):
            self._optimizer.zero_grad(set_to_none=self._drop_gradients)
        losses, share = [self._forward_backward(self._portion.batch, clock)], self._portion.share
        while not self._portion.last:
            self._load(clock)
            losses.append(self._forward_backward(self._portion.batch, clock))
            share += self._portion.share
        with clock.phase("optimizer"):
            self._clip(self._optimizer, self._scaler)
            self._scaler.step(self._optimizer)
            self._scaler.update()
            self._schedule.after("iteration")
        self.iteration += 1
        self.counts["iterations"] += 1
        self._log(self._losses.push(self.iteration, added(losses), share))
        self._collector.after_iteration(self.counts["iterations"])
        self._periodic_work(clock)

    def _load(self, clock: Clock) -> None:
        """Take the next batch; if it begins an epoch, step the schedule for the end of the previous epoch."""
        with clock.phase("data"):
            self._portion = next(self._portions)
        for _ in range(self._portion.place.epoch - self._place.epoch):
            self._schedule.after("epoch")
        self._place = self._portion.place
        self.counts["examples"] += self._portion.rows

    def _periodic_work(self, clock: Clock) -> None:
        parts = self._parts
        if parts.evaluate_every and self.iteration % parts.evaluate_every == 0:
            with clock.phase("evaluate"):
                self._figures = self._evaluate()
                self._schedule.after("evaluation", self._figures)
            with clock.phase("gc"):
                self._collector.after_evaluation()
        if parts.save_every and self.iteration % parts.save_every == 0 and self._replicas.writes:
            with clock.phase("checkpoint"):
                self._writer.save(self.state_dict(), self.checkpoint_file)

    def _evaluate(self) -> dict[str, float]:
        return self._evaluation.figures(self.model, self._autocast)

    def _forward_backward(self, batch: Any, clock: Clock) -> Tensor:
        """Add the part of `batch` to the gradients of the mean loss over an iteration's rows, piece by piece.

        Returns the part of `batch` in that mean loss and in its terms: [] or [1 + terms].
        """
        rows, losses = batches.rows_of(batch), []
        pieces = list(self._pieces(batch))
        for number, piece in enumerate(pieces, 1):
            self._replicas.before_piece(self._portion.last and number == len(pieces), self.counts)
            with clock.phase("forward"), self._autocast:
                loss, terms = self._loss(piece)
                # A mean over pieces would give the rows of a smaller last piece a larger weight.
                weight = self._portion.share * (batches.rows_of(piece) / rows)
                loss = loss if weight == 1 else loss * weight
            with clock.phase("backward"):
                self._scaler.scale(self._replicas.scaled(loss)).backward()
            self.counts["micro_steps"] += 1
            losses.append(
                loss.detach() if terms is None else torch.cat((loss.detach().reshape(1), terms * weight))
            )
        return added(losses)

    def _loss(self, piece: Any) -> tuple[Tensor, Tensor | None]:
        """The mean loss [] of some rows, and its terms [terms] if the training names them."""
        loss = self._parts.loss(self._forward, *batches.arguments(piece))
        if not isinstance(loss, Mapping):
            return loss, None
        if taken := {"iteration", "loss"} & loss.keys():
            raise ConfigError(
                f"the loss has a term called {min(taken)}, and its terms are added up; return the total"
                " alone, or name its terms otherwise"
            )
        self._losses.names = tuple(loss)
        terms = torch.stack(list(loss.values()))
        return terms.sum(), terms.detach()

    def _log(self, row: Row | None) -> None:
        """Log the row of the previous iteration, whose loss has arrived: see `LateLosses`."""
        if row is not None:
            self.context.log({"iteration": row.iteration, "loss": row.loss, **row.terms, **self._figures})

    def _log_last(self) -> None:
        self._log(self._losses.take())

    def progress(self) -> float:
        """Examples trained on since `setup`."""
        return float(self.counts["examples"])

    def numbers(self) -> dict[str, float]:
        """The last loss that has arrived, and figures of the held-out rows."""
        history = self._losses.history
        last = self._replicas.total(history[-1]).item() if history else math.nan
        return {"last_loss": last, **self._evaluate()}

    def evidence(self) -> Evidence:
        """Losses, the first gradient and parameters."""
        history, numbers = list(self._losses.history), {"examples": self.progress()}
        tensors = {
            "losses": self._replicas.total(torch.stack(history)).float().cpu() if history else torch.zeros(0),
            "parameters": flat(self.model.parameters()),
        }
        if self._first_gradient is not None:
            tensors["first_gradient"] = self._first_gradient
        if self._parts.save_every:
            numbers["checkpoint_error"] = checkpoints.error_of(
                self._writer, self.state_dict, self.model, self.checkpoint_file
            )
        return Evidence(tensors, numbers)

    def probe(self) -> Any:
        """The first rows of the data, equal in every arm; as many as a batch has, to compile no new shape.

        If the training has its own loader, its first batch.
        """
        with sources.fixed_draws(self.context.seed):
            for batch in sources.first_batches(self._parts, int(self.config.batch_size), self.context.seed):
                return batches.moved(batch, lambda tensor: tensor.to(self.device))
        raise ConfigError(
            f"the data have no batch of {self.config.batch_size} rows; use a smaller workload.batch_size"
        )

    def _gradient(self) -> Tensor:
        """Unscaled gradient [all parameters] of the probe's mean loss, by the arm's code path of training."""
        counts, probe = Counter(self.counts), self.probe()
        own, rows = self._replicas.share.of_batch(probe), batches.rows_of(probe)
        self._portion = Portion(own, batches.rows_of(own) / rows, rows, last=True, place=self._place)
        self._forward_backward(own, NullClock())
        found = flat(
            p.grad if p.grad is not None else torch.zeros_like(p)
            for p in self.model.parameters()
            if p.requires_grad
        )
        self._optimizer.zero_grad(set_to_none=True)
        self.counts.clear()
        self.counts.update(counts)
        return found / self._scaler.get_scale()

    def counters(self) -> Mapping[str, float]:
        """Counts since `setup`, counted where the work is done, not where levels are read. Add your own."""
        self._writer.flush()
        collector, iterations = self._collector, self.counts["iterations"]
        return {
            **{name: self.counts[name] for name in COUNTED},
            "tf32_iterations": iterations if precision.tf32_is_on() else 0,
            "evaluations": collector.evaluations,
            "gc_runs": collector.runs,
            "uncollected_evaluations": collector.evaluations - collector.runs,
            "checkpoint_writes": self._writer.written,
            "background_saves": self._writer.in_background,
        }

    def data_digest(self) -> str:
        """SHA-256 of the values of the first rows, and of their number where there is one."""
        return sources.data_digest(self._parts)

    def replayable(self) -> Replayable:
        """What parity needs to replay single iterations."""
        named = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        return Replayable(named, self._optimizer, self.state_dict, self.load_state_dict)

    def state_dict(self) -> dict[str, Any]:
        """The state that a training needs to continue where it stopped."""
        states = {name: part.state_dict() for name, part in self._stateful().items()}
        return {"iteration": self.iteration, "place": list(self._place), **states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken; the loader starts at the next batch."""
        self.iteration, self._place = state["iteration"], Place(*state["place"])
        for name, part in self._stateful().items():
            # the saved training may not have scaled its loss
            if name != "scaler" or (state["scaler"] and self._scaler.is_enabled()):
                part.load_state_dict(state[name])
        self._stop_loading()
        self._start_loading()

    def _stateful(self) -> dict[str, Any]:
        """Parts that have a state; the schedule comes after the optimiser, whose rates it sets."""
        optimizer = self._optimizer
        return {
            "model": self.model,
            "optimizer": optimizer,
            "scaler": self._scaler,
            "schedule": self._schedule,
            **{f"own/{name}": one for name, one in self._parts.state.items()},
        }

    @property
    def checkpoint_file(self) -> Path:
        """The file in which the state is saved."""
        return self.context.scratch_dir / "checkpoint.pt"

    def close(self) -> None:
        """End workers and writer, restore the process's settings, and raise the writer's last error."""
        self._endings.close()


def added(losses: list[Tensor]) -> Tensor:
    """The sum of losses []; a single loss is returned without an operation."""
    return sum(losses[1:], start=losses[0])


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """All values of `tensors` in one vector, on the host."""
    return torch.cat([tensor.detach().float().flatten().cpu() for tensor in tensors])
