"""Training a small classifier on scikit-learn's digits: the shared toggles in a minute.

This is also the template for a workload of your own. In short: declare toggles, choose between their paths
once in `setup`, repeat one iteration in `step`, and show in `evidence` that every path computes the same.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from workloads.api import Clock, Context, Evidence, Levels, Replayable, Work, Workload
from workloads.digits import data, model
from workloads.digits.collector import collector_for
from workloads.digits.config import DigitsConfig
from workloads.digits.toggles import CHECKS, CLAIMS, TOGGLES
from workloads.toggles import product_type
from workloads.training import checkpoints, loading
from workloads.training.loading import Tensors
from workloads.training.losses import LateLosses, Row
from workloads.training.paths import AUTOCAST, UPDATES


class Digits(Workload):
    """One iteration: load a batch, forward, backward, update. Every few epochs: evaluate, collect garbage,
    save."""

    Config = DigitsConfig
    toggles = TOGGLES
    claims = CLAIMS
    checks = CHECKS
    shape = "steps"
    unit = "example"

    def __init__(self) -> None:
        # Whatever must end says so here as soon as it has started, so that `close` is right after half a
        # setup as well.
        self._endings = contextlib.ExitStack()

    def setup(self, config: DigitsConfig, levels: Levels, context: Context) -> None:
        """Build everything, and choose each toggle's path: `step` never asks for a level."""
        self._config, self._levels, self._context = config, levels, context
        self._device = torch.device(context.device.type)
        self._counts = Counter[str]()
        self._iteration = 0  # of the whole training, across resumptions
        self._digits = data.load_digits()
        self._train, held_out = self._digits.split(config.train_rows)
        self._start_loading()  # before anything else: see `load_batches`
        self._endings.callback(self._stop_loading)
        self._held_out = self._on_device(held_out, rows=len(held_out.labels))
        self._build_training()
        self._build_periodic_work()
        self._accuracy = self._evaluate()
        # Only where it is compared: the pass would compile, and move that cost out of the first iteration.
        self._probe_grad = self._gradient_of_probe() if context.kind == "evidence" else None

    def _start_loading(self) -> None:
        levels, config = self._levels, self._config
        plan = loading.EpochPlan(config.train_rows, config.batch_size, self._context.seed)
        batches = loading.load_batches(
            data.DigitRows(self._train),
            plan,
            start=self._iteration,
            workers=int(levels["num_workers"]),
            pinned=levels["pin_memory"] == "on",
        )
        mover = loading.Mover(self._device, levels["non_blocking"] == "on", self._counts)
        move = loading.move_ahead if levels["prefetch"] == "stream" else loading.move_in_line
        self._batches = move(batches, mover)

    def _stop_loading(self) -> None:
        del self._batches  # the last reference: worker processes end with it

    def _on_device(self, digits: data.RawDigits, rows: int) -> Tensors:
        dataset = data.DigitRows(digits)
        batch = loading.collate([dataset[row] for row in range(rows)])
        return tuple(tensor.to(self._device) for tensor in batch.tensors)

    def _build_training(self) -> None:
        levels, config = self._levels, self._config
        self._set_tf32(levels["tf32"] == "on")
        torch.manual_seed(self._context.seed)
        # Initial values are drawn on the host, so that every device starts from the same ones.
        network = model.Classifier(
            config.model, config.width, config.depth, recompute=levels["grad_checkpointing"] == "on"
        )
        self._network = network.to(self._device)
        self._forward = model.forward_path(self._network, str(levels["compile"]))
        self._optimizer = torch.optim.AdamW(
            self._network.parameters(),
            lr=config.lr,
            weight_decay=config.weight_decay,
            **UPDATES[str(levels["optimizer"])],
        )
        self._autocast: AbstractContextManager[Any] = contextlib.nullcontext()
        if levels["amp"] != "off":
            self._autocast = torch.autocast(self._device.type, AUTOCAST[str(levels["amp"])])
        # Gradients of fp16 underflow unless the loss is scaled up; disabled, the scaler passes everything
        # through.
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=levels["amp"] == "fp16")
        self._drop_gradients = levels["zero_grad"] == "none"
        self._pieces = (
            loading.whole if levels["micro_batch"] == "all" else loading.pieces_of(int(levels["micro_batch"]))
        )

    def _set_tf32(self, on: bool) -> None:
        """Switch TF32 for matrix products; convolutions are left as PyTorch ships them, with TF32 on.

        Evidence trials take it away from convolutions too: its rounding would hide a mistake that is smaller.
        """
        self._endings.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        self._endings.callback(setattr, torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)
        torch.set_float32_matmul_precision("high" if on else "highest")
        torch.backends.cudnn.allow_tf32 = on or self._context.kind != "evidence"

    def _build_periodic_work(self) -> None:
        levels, config = self._levels, self._config
        self._losses = LateLosses()
        self._endings.callback(self._log_last)
        self._collector = collector_for(str(levels["gc"]))
        self._endings.callback(self._collector.close)
        self._writer = (
            checkpoints.AsyncWriter() if levels["checkpoint"] == "async" else checkpoints.SyncWriter()
        )
        self._endings.callback(self._writer.close)
        self._eval_period = config.eval_every * config.epoch
        self._checkpoint_period = config.checkpoint_every * config.epoch
        # A collection at every tenth evaluation is periodic work as well: a region without one would flatter
        # it.
        self.cadence = math.lcm(self._eval_period * (self._collector.every or 1), self._checkpoint_period)

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
        self._iteration += 1
        self._counts["iterations"] += 1
        self._counts["examples"] += self._config.batch_size
        self._log(self._losses.push(self._iteration, loss))
        self._collector.after_iteration(self._counts["iterations"])
        if self._iteration % self._eval_period == 0:
            self._evaluate_and_collect(clock)
        if self._iteration % self._checkpoint_period == 0:
            with clock.phase("checkpoint"):
                self._writer.save(self.state_dict(), self._checkpoint_file)

    def _forward_backward(self, batch: Tensors, clock: Clock) -> Tensor:
        """Add the gradients of the mean loss over `batch`, piece by piece, and return that loss [].

        Each piece adds the sum over its rows divided by the rows of the whole batch. A mean over each piece
        would weigh the rows of a smaller last piece more than the others.
        """
        rows = len(batch[1])  # images [N, P] float32 in [0, 1], labels [N] int64
        losses = []
        for images, labels in self._pieces(batch):
            with clock.phase("forward"), self._autocast:
                loss = F.cross_entropy(self._forward(images), labels, reduction="sum") / rows
            with clock.phase("backward"):
                self._scaler.scale(loss).backward()
            self._counts["micro_steps"] += 1
            losses.append(loss.detach())
        return sum(losses[1:], start=losses[0])  # one piece: no operation at all

    def _log(self, row: Row | None) -> None:
        """Hand over the row of the previous iteration, which is the one that has arrived: see
        `LateLosses`."""
        if row is not None:
            self._context.log({**row._asdict(), "accuracy": self._accuracy})

    def _log_last(self) -> None:
        self._log(self._losses.take())

    def _evaluate_and_collect(self, clock: Clock) -> None:
        with clock.phase("evaluate"):
            self._accuracy = self._evaluate()
        with clock.phase("gc"):
            self._collector.after_evaluation()

    @torch.no_grad()
    def _evaluate(self) -> float:
        """Share of held-out examples that are classified correctly.

        The network runs uncompiled: other shapes, and no gradients, would be compiled for all over again.
        """
        images, labels = self._held_out
        with self._autocast:
            guesses = self._network(images).argmax(dim=1)
        return (guesses == labels).float().mean().item()

    def progress(self) -> float:
        """Examples trained on since `setup`."""
        return float(self._counts["examples"])

    def evidence(self) -> Evidence:
        """Losses, gradients, outputs and parameters; in other trials than evidence trials only four
        numbers."""
        parameters = self._flat(self._network.parameters())
        losses = torch.stack(list(self._losses.history)) if self._losses.history else torch.zeros(0)
        numbers = {
            "examples": self.progress(),
            "last_loss": losses[-1].item() if len(losses) else math.nan,
            "accuracy": self._evaluate(),
            "parameter_norm": parameters.norm().item(),
        }
        if self._probe_grad is None:
            return Evidence(numbers=numbers)
        tensors = {
            "losses": losses.cpu(),
            "probe_grad": self._probe_grad,
            "probe_logits": self._probe_logits(),
            "parameters": parameters,
        }
        return Evidence(tensors, {**numbers, "checkpoint_error": self._checkpoint_error(parameters)})

    def _probe(self) -> Tensors:
        """Examples that are the same in every arm, as many as a batch: compiled code meets no new shape."""
        return self._on_device(self._train, rows=self._config.batch_size)

    def _gradient_of_probe(self) -> Tensor:
        """Gradient of the probe's loss [all parameters] along the path that the arm trains on, unscaled."""
        self._forward_backward(self._probe(), Unclocked())
        gradient = self._flat(p.grad for p in self._network.parameters()) / self._scaler.get_scale()
        self._optimizer.zero_grad(set_to_none=True)
        self._counts.clear()
        return gradient

    def _probe_logits(self) -> Tensor:
        """Logits [N, classes] of the probe along the arm's own path."""
        with self._autocast:
            logits = [
                self._forward(images).detach().float().cpu() for images, _ in self._pieces(self._probe())
            ]
        return torch.cat(logits)

    def _checkpoint_error(self, parameters: Tensor) -> float:
        """Largest difference between `parameters` and a checkpoint of them, if training goes on while it is
        written."""
        state = self.state_dict()
        kept = checkpoints.snapshot(state)
        self._writer.save(state, self._checkpoint_file)
        with torch.no_grad():
            for parameter in self._network.parameters():
                parameter.add_(1.0)
        self._writer.flush()
        saved = torch.load(self._checkpoint_file, map_location="cpu", weights_only=True)["network"]
        self._network.load_state_dict(kept["network"])
        return (
            (self._flat(saved[name] for name, _ in self._network.named_parameters()) - parameters)
            .abs()
            .max()
            .item()
        )

    @staticmethod
    def _flat(tensors: Any) -> Tensor:
        """All values of `tensors` in a row, on the host."""
        return torch.cat([tensor.detach().float().flatten().cpu() for tensor in tensors])

    def counters(self) -> Mapping[str, float]:
        """Counts since `setup`. Those of the toggles are made where the work is done, not where a level is
        read."""
        self._writer.flush()
        applied = max((float(state["step"]) for state in self._optimizer.state.values()), default=0.0)
        tf32 = torch.get_float32_matmul_precision() != "highest"
        named = (
            "iterations",
            "examples",
            "micro_steps",
            "worker_batches",
            "pinned_batches",
            "unwaited_copies",
            "prefetched_batches",
        )
        return {
            **{name: self._counts[name] for name in named},
            "tf32_iterations": self._counts["iterations"] if tf32 else 0,
            "skipped_updates": self._iteration - applied,  # fp16: the scaler found gradients that overflowed
            "evaluations": self._collector.evaluations,
            "gc_runs": self._collector.runs,
            "uncollected_evaluations": self._collector.evaluations - self._collector.runs,
            "checkpoint_writes": self._writer.written,
            "background_saves": self._writer.in_background,
        }

    def work(self) -> Work:
        """Products of one example's forward and backward pass; evaluation is left out."""
        flops = model.training_flops(self._config.model, self._config.width, self._config.depth)
        return Work(flops, products=product_type(self._levels))

    def data_digest(self) -> str:
        """SHA-256 of all examples."""
        return self._digits.digest()

    def state_dict(self) -> dict[str, Any]:
        """What a training needs to go on where it stopped."""
        return {
            "iteration": self._iteration,
            "network": self._network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "scaler": self._scaler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken; the loader jumps to the batch that comes next."""
        self._iteration = state["iteration"]
        self._network.load_state_dict(state["network"])
        self._optimizer.load_state_dict(state["optimizer"])
        if (
            state["scaler"] and self._scaler.is_enabled()
        ):  # the state may be of a training that scales nothing
            self._scaler.load_state_dict(state["scaler"])
        self._stop_loading()
        self._start_loading()

    def replayable(self) -> Replayable:
        """What parity replays single iterations with."""
        return Replayable(
            dict(self._network.named_parameters()), self._optimizer, self.state_dict, self.load_state_dict
        )

    def close(self) -> None:
        """End worker processes and the writer, and put the process's settings back; raise what the writer
        still has to say."""
        self._endings.close()

    @property
    def _checkpoint_file(self) -> Path:
        return self._context.scratch_dir / "checkpoint.pt"


class Unclocked:
    """Takes the marks of an iteration that nobody measures."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """A mark that does nothing."""
        return contextlib.nullcontext()
