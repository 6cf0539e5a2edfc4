"""A training loop that acts on the shared toggles: a subclass says what is trained, not how.

One iteration loads a batch, runs it forwards and backwards, and updates. What each toggle does stands in
`paths` and `loading`; evidence is one loss for each iteration, the gradient of the first batch, and the
parameters at the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from workloads.api import Check, Clock, Context, Evidence, Levels, Replayable, Toggle, Workload
from workloads.errors import ConfigError, ContractError
from workloads.training import loading, paths
from workloads.training.losses import LateLosses, Row
from workloads.training.toggles import CHECKS, shared_toggles

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
}
"""What a toggle stands at that a workload does not declare: its baseline."""


@dataclass(frozen=True)
class Parts:
    """What is trained.

    Attributes
    ----------
    model : as built on the host; it is moved to the device, compiled and so on by the loop
    data : a map-style data set whose rows are tensors, or tuples of tensors and numbers
    loss : from the model, as the arm runs it, and the tensors of a batch [rows, ...] to the mean loss [] of
        its rows
    optimizer : makes the optimiser: called with the parameters and with the keywords `foreach` and `fused`,
        which go to a class of torch.optim
    blocks : parts of the model whose activations ``grad_checkpointing=on`` recomputes
    """

    model: nn.Module
    data: Dataset[Any]
    loss: Callable[..., Tensor]
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW
    blocks: Sequence[nn.Module] = ()


@dataclass
class Config:
    """What every training needs; put fields of your own beside it."""

    batch_size: int = 64


class Training(Workload):
    """A training loop with the shared toggles; a subclass defines `Config`, with a `batch_size`, and
    `build`."""

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
        # Whatever must end says so here as soon as it has started, so that `close` is right after half a
        # setup as well.
        self._endings = contextlib.ExitStack()

    def build(self, config: Any, levels: Levels, context: Context) -> Parts:
        """What is trained. Called with torch's generator seeded; `levels` are there for toggles of your
        own."""
        raise ContractError(f"{type(self).__name__} does not define build")

    def setup(self, config: Any, levels: Levels, context: Context) -> None:
        """Build the parts, and choose each toggle's path: `step` never asks for a level."""
        self.context, self.levels = context, {**OFF, **levels}
        self.device = torch.device(context.device.type)
        self.counts = Counter[str]()
        paths.set_tf32(self.levels["tf32"] == "on", self._endings)
        torch.manual_seed(context.seed)
        self._parts = self.build(config, levels, context)
        self._batch_size = int(config.batch_size)
        self._start_loading(0)
        self._endings.callback(self._stop_loading)
        self._choose_paths()
        self._losses = LateLosses()
        self._endings.callback(self._log_last)
        # Only where it is compared: the pass would compile, and move that cost out of the first iteration.
        self._first_gradient = self._gradient() if context.kind == "evidence" else None

    def _start_loading(self, start: int) -> None:
        """From an iteration on. Before the device is touched: worker processes are forked, and must not
        inherit any of it."""
        levels, data = self.levels, self._parts.data
        self._plan = loading.EpochPlan(_rows(data), self._batch_size, self.context.seed)
        batches = loading.load_batches(
            data,
            self._plan,
            start=start,
            workers=int(levels["num_workers"]),
            pinned=levels["pin_memory"] == "on",
        )
        mover = loading.Mover(self.device, levels["non_blocking"] == "on", self.counts)
        move = loading.move_ahead if levels["prefetch"] == "stream" else loading.move_in_line
        self._batches = move(batches, mover)

    def _stop_loading(self) -> None:
        del self._batches  # the last reference: worker processes end with it

    def _choose_paths(self) -> None:
        levels, parts = self.levels, self._parts
        if levels["grad_checkpointing"] == "on":
            if not parts.blocks:
                raise ConfigError(
                    "toggles.grad_checkpointing=on recomputes nothing: let build() name Parts(blocks=...)"
                )
            paths.recompute(parts.blocks)
        self.model = parts.model.to(self.device)
        self._forward = paths.compiled(self.model, str(levels["compile"]))
        self._optimizer = parts.optimizer(self.model.parameters(), **paths.UPDATES[str(levels["optimizer"])])
        self._autocast = paths.autocast(str(levels["amp"]), self.device)
        self._scaler = paths.grad_scaler(str(levels["amp"]), self.device)
        self._drop_gradients = levels["zero_grad"] == "none"
        size = levels["micro_batch"]
        self._pieces = loading.whole if size == "all" else loading.pieces_of(int(size))

    def step(self, clock: Clock) -> None:
        """One batch."""
        with clock.phase("data"):
            batch = next(self._batches)
        with clock.phase("optimizer"):
            self._optimizer.zero_grad(set_to_none=self._drop_gradients)
        loss = self._forward_backward(batch, clock)
        with clock.phase("optimizer"):
            self._scaler.step(self._optimizer)
            self._scaler.update()
        self.counts["iterations"] += 1
        self.counts["examples"] += self._batch_size
        self._log(self._losses.push(self.counts["iterations"], loss))

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
        """Hand over the row of the previous iteration, which is the one that has arrived: see
        `LateLosses`."""
        if row is not None:
            self.context.log(row._asdict())

    def _log_last(self) -> None:
        self._log(self._losses.take())

    def progress(self) -> float:
        """Examples trained on since `setup`."""
        return float(self.counts["examples"])

    def evidence(self) -> Evidence:
        """Losses, the first gradient and parameters; in other trials than evidence trials only numbers."""
        history = list(self._losses.history)
        numbers = {"examples": self.progress(), "last_loss": history[-1].item() if history else math.nan}
        if self._first_gradient is None:
            return Evidence(numbers=numbers)
        losses = torch.stack(history).float().cpu() if history else torch.zeros(0)
        tensors = {
            "losses": losses,
            "first_gradient": self._first_gradient,
            "parameters": _flat(self.model.parameters()),
        }
        return Evidence(tensors, numbers)

    def _gradient(self) -> Tensor:
        """Gradient [all parameters] of the mean loss of the first rows, along the path that the arm trains
        on, unscaled."""
        rows = [self._parts.data[row] for row in range(self._batch_size)]
        batch = tuple(tensor.to(self.device) for tensor in loading.collate(rows).tensors)
        counts = Counter(self.counts)
        self._forward_backward(batch, _Unclocked())
        found = _flat(
            p.grad if p.grad is not None else torch.zeros_like(p)
            for p in self.model.parameters()
            if p.requires_grad
        )
        self._optimizer.zero_grad(set_to_none=True)
        self.counts.clear()
        self.counts.update(counts)
        return found / self._scaler.get_scale()

    def counters(self) -> Mapping[str, float]:
        """Counts since `setup`, made where the work is done, not where a level is read. Add your own to
        them."""
        named = ("iterations", "examples", "micro_steps")
        loaded = ("worker_batches", "pinned_batches", "unwaited_copies", "prefetched_batches")
        tf32 = torch.get_float32_matmul_precision() != "highest"
        return {
            **{name: self.counts[name] for name in (*named, *loaded)},
            "tf32_iterations": tf32 * self.counts["iterations"],
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
        return {
            "iterations": self.counts["iterations"],
            **{name: part.state_dict() for name, part in parts.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken; the loader jumps to the batch that comes next."""
        self.counts["iterations"] = state["iterations"]
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        if (
            state["scaler"] and self._scaler.is_enabled()
        ):  # the state may be of a training that scales nothing
            self._scaler.load_state_dict(state["scaler"])
        self._stop_loading()
        self._start_loading(state["iterations"])

    def close(self) -> None:
        """End worker processes, and put the process's settings back."""
        self._endings.close()


def _rows(data: Dataset[Any]) -> int:
    length = getattr(data, "__len__", None)
    if length is None:
        raise ConfigError(
            "the data set has no length: Training needs a map-style one, with __len__ and __getitem__"
        )
    return int(length())


def _flat(tensors: Any) -> Tensor:
    """All values of `tensors` in a row, on the host."""
    return torch.cat([tensor.detach().float().flatten().cpu() for tensor in tensors])


class _Unclocked:
    """Takes the marks of an iteration that nobody measures."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext()
