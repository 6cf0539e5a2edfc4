"""The naive step from gradients to the next weights, the log, and what several processes would exchange.

The norm is read on the host, parameter by parameter, and every figure of the log at once. `Reference` is the
rest of the naive path.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from perfsweep.workloads.api import Context
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.training.updates import UPDATES

NAMES = ("tf", "first", "kce", "kd", "extra", "loss", "grad_norm", "skipped")
"""Names of a step's metrics, in their order."""
KEPT = 1000
"""Losses that are remembered."""


class Monitor:
    """Memory and utilisation; nothing here waits for the device.

    On CUDA: allocated and reserved MiB, fragmentation 1 - allocated / reserved, inactive split MiB, allocator
    retries (they come before running out) and NVML's utilisation. On CPU: the process's CPU time over wall
    time.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def sample(self) -> dict[str, float]:
        """Figures since the last sample."""
        if self._device.type == "cuda":
            return self._of_cuda()
        wall, cpu = time.perf_counter(), time.process_time()
        busy = (cpu - self._cpu) / max(wall - self._wall, 1e-9)
        self._wall, self._cpu = wall, cpu
        return {"device_busy": busy}

    def _of_cuda(self) -> dict[str, float]:
        stats = torch.cuda.memory_stats(self._device)
        allocated, reserved = stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"]
        try:
            busy = torch.cuda.utilization(self._device) / 100
        except (ModuleNotFoundError, RuntimeError):  # no NVML in this container
            busy = math.nan
        return {
            "device_busy": busy,
            "allocated_mb": allocated / 2**20,
            "reserved_mb": reserved / 2**20,
            "fragmentation": 1 - allocated / max(reserved, 1),
            "inactive_split_mb": stats["inactive_split_bytes.all.current"] / 2**20,
            "alloc_retries": float(stats["num_alloc_retries"]),
        }


T = TypeVar("T")

LAST_SHARE = 0.02  # of the learning rate, where the cosine ends


def schedule(step: int, total: int) -> float:
    """Share of the learning rate at an optimiser step: a cosine from 1 to 0.02 at the last of `total`."""
    progress = min(step / max(total - 1, 1), 1.0)
    return LAST_SHARE + (1 - LAST_SHARE) * 0.5 * (1 + math.cos(math.pi * progress))


def device_of(context: Context) -> torch.device:
    """The device of this process, made the current one."""
    if context.device.type != "cuda":
        return torch.device(context.device.type)
    torch.cuda.set_device(context.local_rank % max(torch.cuda.device_count(), 1))
    return torch.device("cuda", torch.cuda.current_device())


class Updates:
    """Updates of what is trained by AdamW, and what they leave in the log."""

    def __init__(self, config: LatentWireConfig, context: Context) -> None:
        self.config, self.context, self.device = config, context, device_of(context)
        self.counts = Counter[str]()
        self.history: deque[float] = deque(maxlen=KEPT)
        self.monitor = Monitor(self.device)

    def optimise(self, groups: Mapping[str, Sequence[nn.Parameter]], steps: int) -> None:
        """Make AdamW for a training of `steps` steps, over named groups of what is trained."""
        self.groups, self.steps, self.updates = groups, steps, 0
        self.parameters = [p for group in groups.values() for p in group]
        rate, decay = self.config.lr, self.config.weight_decay
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=rate, weight_decay=decay, **UPDATES[self.update_kind]
        )
        device = self.parameters[0].device
        self.loss_scale = torch.full((), self.first_scale, device=device)
        self.good, self.skipped = torch.zeros((), device=device), torch.zeros((), device=device)

    @property
    def update_kind(self) -> str:
        """How the optimiser updates: one parameter after the other."""
        return "default"

    @property
    def first_scale(self) -> float:
        """What losses are multiplied by at first."""
        return 1.0

    def scaled(self, loss: Tensor) -> Tensor:
        """A loss as its backward pass takes it."""
        return loss

    def unscale(self, gradients: list[Tensor]) -> None:
        """Take the scale of the loss out of gradients: it has none."""

    def adjust_scale(self, broken: Tensor) -> None:
        """Change the scale of the loss after an update, `broken` [] if it was not finite."""

    def apply(self) -> Tensor:
        """One update from the gradients present; their norm [] before clipping, without the loss scale.

        One whose norm is not finite is skipped whole and counted, and the schedule goes on.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * schedule(self.updates, self.steps)
        self.updates += 1
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        self.unscale(gradients)
        norm = self.norm(gradients)
        clip = (self.config.clip / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, clip)  # type: ignore[attr-defined]
        broken = (~torch.isfinite(norm)).float()
        self.skipped += broken
        self.adjust_scale(broken)
        self.take_step(broken)
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """The norm [] as upstream takes it: every parameter's on the host, by group and again for all."""
        for parameters in self.groups.values():
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.norm().item()
                    self.counts["syncs"] += 1
        squares = 0.0
        for gradient in gradients:
            squares += gradient.norm().item() ** 2
            self.counts["syncs"] += 1
        return torch.tensor(
            math.sqrt(squares) if math.isfinite(squares) else math.inf, device=gradients[0].device
        )

    def take_step(self, broken: Tensor) -> None:
        """Update, unless the gradient is `broken` [], which is read on the host."""
        self.counts["syncs"] += 1
        if not broken.item():
            self.optimizer.step()

    def updates_state(self) -> dict[str, Any]:
        """What goes on after a restart."""
        scale = {"loss_scale": self.loss_scale, "good": self.good, "skipped": self.skipped}
        return {"step": self.updates, "optimizer": self.optimizer.state_dict(), **scale}

    def load_updates(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.updates = state["step"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.loss_scale, self.good, self.skipped = state["loss_scale"], state["good"], state["skipped"]

    # What the log is told.

    def push(self, values: Tensor, host: Mapping[str, float]) -> None:
        """Metrics of a step, read one by one: `values` [8] in the order of `NAMES`, `host` known here."""
        read = []
        for value in values.unbind():
            read.append(value.item())
            self.counts["syncs"] += 1
        self.write(read, {**host, **self.monitor.sample()})

    def write(self, read: list[float], host: Mapping[str, float]) -> None:
        """A row of the log."""
        row = dict(zip(NAMES, read, strict=True))
        self.history.append(row["loss"])
        self.context.log({**row, **host})

    def flush(self) -> None:
        """Hand over what the log was not told yet: nothing."""

    def periods(self) -> list[int]:
        """Steps after which something comes again."""
        return [self.config.log_every, self.config.eval_every or 1]

    def release(self, step: int) -> None:
        """Give memory back to the device after a step: none."""

    def mark_step(self) -> None:
        """Say that a step begins: nothing waits for it."""

    # Several processes: there is one.

    @property
    def row_share(self) -> tuple[int, int]:
        """Place of this process among all that have rows of their own, and how many these are."""
        return 0, 1

    def own_models(self, models: int) -> list[int]:
        """Models that this process computes."""
        return list(range(models))

    def add_up(self) -> None:
        """Sum the gradients of all processes."""

    def gathered(self, by_model: Mapping[int, T]) -> list[T]:
        """What every model has, in their order, whichever process computes it."""
        return [by_model[number] for number in sorted(by_model)]

    def least(self, number: int) -> int:
        """The smallest of all processes' numbers."""
        return number

    def total(self, terms: Tensor) -> Tensor:
        """Terms summed over processes."""
        return terms
