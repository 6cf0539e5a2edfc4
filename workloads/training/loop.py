"""A training loop that acts on the shared toggles: a subclass says what is trained, not how.

One iteration loads a batch, runs it forwards and backwards, and updates; every so many of them it evaluates,
collects garbage and saves. What each toggle does stands in the modules beside this one. Evidence is one loss
for each iteration, the gradient of the first batch, and the parameters at the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.data import Dataset

from workloads.api import Check, Clock, Context, Evidence, Levels, NullClock, Replayable, Toggle, Workload
from workloads.errors import ConfigError, ContractError
from workloads.training import checkpoints, loading, precision, prefetch
from workloads.training.compilation import compile_model
from workloads.training.garbage_collection import POLICIES, Collector
from workloads.training.losses import LateLosses, Row
from workloads.training.parts import ACTS_ON, Parts
from workloads.training.recomputation import recompute
from workloads.training.toggles import CHECKS, shared_toggles
from workloads.training.updates import UPDATES

DIGESTED_ROWS = 256
"""Rows that identify the data: the digest of all would read data sets that do not fit into memory."""

OFF: Levels = {
    "amp": "off",
    "tf32": "off",
    "compile": "off",
    "pin_memory": "off",
    "num_workers": 0,
    "non_blocking": "off",
    "prefetch": "off",
    "micro_batch": "all",
    "optimizer": "default",
    "zero_grad": "zero",
    "grad_checkpointing": "off",
    "gc": "automatic",
    "checkpoint": "sync",
}
"""What a toggle stands at that a workload does not declare."""

COUNTED = (
    "iterations",
    "examples",
    "micro_steps",
    "worker_batches",
    "pinned_batches",
    "unwaited_copies",
    "prefetched_batches",
)


@dataclass
class Config:
    """What every training needs; put fields of your own beside it."""

    batch_size: int = 64


class Training(Workload):
    """A training loop with the shared toggles; a subclass has a `Config` with `batch_size`, and `build`."""

    Config: ClassVar[type] = Config
    toggles: ClassVar[tuple[Toggle, ...]] = shared_toggles()
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
        # Whatever must end says so once it has started, so that `close` is right after half a setup too.
        self._endings = contextlib.ExitStack()

    def build(self, config: Any, levels: Levels, context: Context) -> Parts:
        """What is trained. torch's generator is seeded; `levels` are there for toggles of your own."""
        raise ContractError(f"{type(self).__name__} does not define build")

    def setup(self, config: Any, levels: Levels, context: Context) -> None:
        """Build the parts, and choose each toggle's path: `step` never asks for a level."""
        self.config, self.context, self.levels = config, context, {**OFF, **levels}
        self.device = torch.device(context.device.type)
        self.counts = Counter[str]()
        self.iteration = 0  # of the whole training, across resumptions
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
        """Take TF32 from convolutions, and the first gradient: a pass that would compile elsewhere too."""
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
        """From this iteration on; before the device is touched, which forked workers must not inherit."""
        levels, data = self.levels, self._parts.data
        plan = loading.EpochPlan(_rows(data), int(self.config.batch_size), self.context.seed)
        plan.start = self.iteration
        pinned, workers = levels["pin_memory"] == "on", int(levels["num_workers"])
        loader = loading.data_loader(
            data, workers=workers, pinned=pinned, batch_sampler=plan, collate_fn=loading.collate
        )
        mover = loading.Mover(self.device, levels["non_blocking"] == "on", self.counts)
        self._batches = map(mover, loading.endless_batches(loader, plan))
        if levels["prefetch"] == "stream":
            self._batches = prefetch.ahead(self._batches, self.device, self.counts, tensors=iter)

    def _stop_loading(self) -> None:
        del self._batches  # the last reference: worker processes end with it

    def _choose_paths(self) -> None:
        levels, parts = self.levels, self._parts
        if levels["grad_checkpointing"] == "on":
            recompute(parts.blocks)
        self.model = parts.model.to(self.device)
        self._forward = compile_model(self.model, str(levels["compile"]), fullgraph=parts.fullgraph)
        self._optimizer = parts.optimizer(self.model.parameters(), **UPDATES[str(levels["optimizer"])])
        self._autocast = precision.autocast(str(levels["amp"]), self.device)
        self._scaler = precision.grad_scaler(str(levels["amp"]), self.device)
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
        # A collection at every tenth evaluation is periodic work too: a region without one flatters it.
        self.cadence = math.lcm(
            parts.evaluate_every * (self._collector.every or 1) or 1, parts.save_every or 1
        )
        held_out = parts.held_out
        self._held_out = (
            () if held_out is None else loading.first_rows(held_out, _rows(held_out), self.device)
        )
        self._figures = self._evaluate()

    def step(self, clock: Clock) -> None:
        """One batch, and the periodic work that is due after it."""
        with clock.phase("data"):
            batch = next(self._batches)
        with clock.phase("optimizer"):
            self._optimizer.zero_grad(set_to_none=self._drop_gradients)
        loss = self._forward_backward(batch, clock)
        with clock.phase("optimizer"):
            self._scaler.step(self._optimizer)
            self._scaler.update()
        self.iteration += 1
        self.counts["iterations"] += 1
        self.counts["examples"] += len(batch[0])
        self._log(self._losses.push(self.iteration, loss))
        self._collector.after_iteration(self.counts["iterations"])
        self._periodic_work(clock)

    def _periodic_work(self, clock: Clock) -> None:
        parts = self._parts
        if parts.evaluate_every and self.iteration % parts.evaluate_every == 0:
            with clock.phase("evaluate"):
                self._figures = self._evaluate()
            with clock.phase("gc"):
                self._collector.after_evaluation()
        if parts.save_every and self.iteration % parts.save_every == 0:
            with clock.phase("checkpoint"):
                self._writer.save(self.state_dict(), self.checkpoint_file)

    @torch.no_grad()
    def _evaluate(self) -> dict[str, float]:
        """Figures of the held-out rows. Uncompiled: other shapes without gradients would compile anew."""
        if self._parts.evaluate is None:
            return {}
        with self._autocast:
            return dict(self._parts.evaluate(self.model, *self._held_out))

    def _forward_backward(self, batch: loading.Tensors, clock: Clock) -> Tensor:
        """Add the gradients of the mean loss over `batch`, piece by piece, and return that loss []."""
        rows = len(batch[0])
        losses = []
        for piece in self._pieces(batch):
            with clock.phase("forward"), self._autocast:
                loss = self._parts.loss(self._forward, *piece)
                # A mean over each piece would weigh the rows of a smaller last piece more than the others.
                loss = loss if len(piece[0]) == rows else loss * (len(piece[0]) / rows)
            with clock.phase("backward"):
                self._scaler.scale(loss).backward()
            self.counts["micro_steps"] += 1
            losses.append(loss.detach())
        return sum(losses[1:], start=losses[0])  # one piece: no operation at all

    def _log(self, row: Row | None) -> None:
        """Hand over the row of the previous iteration, the one that has arrived: see `LateLosses`."""
        if row is not None:
            self.context.log({**row._asdict(), **self._figures})

    def _log_last(self) -> None:
        self._log(self._losses.take())

    def progress(self) -> float:
        """Examples trained on since `setup`."""
        return float(self.counts["examples"])

    def numbers(self) -> dict[str, float]:
        """The last loss that has arrived, and figures of the held-out rows."""
        history = self._losses.history
        return {"last_loss": history[-1].item() if history else math.nan, **self._evaluate()}

    def evidence(self) -> Evidence:
        """Losses, the first gradient and parameters."""
        history, numbers = list(self._losses.history), {"examples": self.progress()}
        tensors = {
            "losses": torch.stack(history).float().cpu() if history else torch.zeros(0),
            "parameters": flat(self.model.parameters()),
        }
        if self._first_gradient is not None:
            tensors["first_gradient"] = self._first_gradient
        if self._parts.save_every:
            numbers["checkpoint_error"] = checkpoints.error_of(
                self._writer, self.state_dict, self.model, self.checkpoint_file
            )
        return Evidence(tensors, numbers)

    def probe(self) -> loading.Tensors:
        """The first rows of the data, equal in every arm; a batch's worth: no new shape to compile."""
        return loading.first_rows(self._parts.data, int(self.config.batch_size), self.device)

    def _gradient(self) -> Tensor:
        """Gradient [all parameters] of the probe's mean loss, on the arm's training path, unscaled."""
        counts = Counter(self.counts)
        self._forward_backward(self.probe(), NullClock())
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
        """Counts since `setup`, made where work is done, not where levels are read. Add your own."""
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
        """SHA-256 of the number of rows and the values of the first of them, however a level stores them."""
        data, sha = self._parts.data, hashlib.sha256()
        sha.update(str(_rows(data)).encode())
        for row in range(min(_rows(data), DIGESTED_ROWS)):
            for tensor in loading.collate([data[row]]).tensors:
                wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
                sha.update((wide + 0.0).numpy().tobytes())  # + 0.0: integers know no negative zero
        return sha.hexdigest()

    def replayable(self) -> Replayable:
        """What parity replays single iterations with."""
        named = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        return Replayable(named, self._optimizer, self.state_dict, self.load_state_dict)

    def state_dict(self) -> dict[str, Any]:
        """What a training needs to go on where it stopped."""
        parts = {"model": self.model, "optimizer": self._optimizer, "scaler": self._scaler}
        return {"iteration": self.iteration, **{name: part.state_dict() for name, part in parts.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken; the loader jumps to the batch that comes next."""
        self.iteration = state["iteration"]
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        # the state may be of a training that scales nothing
        if state["scaler"] and self._scaler.is_enabled():
            self._scaler.load_state_dict(state["scaler"])
        self._stop_loading()
        self._start_loading()

    @property
    def checkpoint_file(self) -> Path:
        """Where the state is saved."""
        return self.context.scratch_dir / "checkpoint.pt"

    def close(self) -> None:
        """End workers and writer; restore the process's settings; raise the writer's last error."""
        self._endings.close()


def _rows(data: Dataset[Any]) -> int:
    length = getattr(data, "__len__", None)
    if length is None:
        raise ConfigError(
            "the data set has no length: Training needs a map-style one, with __len__ and __getitem__"
        )
    return int(length())


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """All values of `tensors` in a row, on the host."""
    return torch.cat([tensor.detach().float().flatten().cpu() for tensor in tensors])
