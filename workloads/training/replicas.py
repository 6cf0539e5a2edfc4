"""One training in several processes: each process has the model and a share of the rows of every batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from perfsweep.workloads.api import Context, Levels
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.training.batches import Share
from perfsweep.workloads.training.parts import Parts


class Alone:
    """A single process with all rows."""

    share = Share()
    writes = True

    def shared_rows(self, rows: int, parts: Parts) -> int:
        """Rows of a batch over all ranks, where `workload.batch_size` is `rows`."""
        return rows

    def wrap(self, model: nn.Module, device: torch.device) -> nn.Module:
        """The model that computes the forward pass."""
        return model

    def before_piece(self, last: bool, counts: Counter[str]) -> None:
        """Prepare for one piece of an iteration; `last` says whether the update follows its backward pass."""
        if last:
            counts["ranks"] += self.share.world

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss [] whose backward pass gives this rank's part of the gradient."""
        return loss

    def total(self, parts: Tensor) -> Tensor:
        """Losses of whole batches from the parts of all ranks."""
        return parts


class Replicas(Alone):
    """DistributedDataParallel averages gradients in the last backward pass before an update.

    Losses are weighted so that the mean over ranks is the mean over the rows of the whole batch.
    """

    def __init__(self, rank: int, world: int) -> None:
        self.share = Share(rank, world)
        self.writes = rank == 0
        self._replica: Any = None

    def wrap(self, model: nn.Module, device: torch.device) -> nn.Module:
        """The model as a replica; all replicas begin with the values of rank 0."""
        if device.type == "cuda":
            torch.cuda.set_device(device)
        self._replica = DistributedDataParallel(
            model, device_ids=[device.index] if device.type == "cuda" else None
        )
        return self._replica

    def before_piece(self, last: bool, counts: Counter[str]) -> None:
        """Exchange gradients in the backward pass of the last piece only; other pieces only add to them."""
        super().before_piece(last, counts)
        self._replica.require_backward_grad_sync = last

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss times the number of ranks, by which the exchange divides gradients."""
        return loss * self.share.world

    def total(self, parts: Tensor) -> Tensor:
        """The sum over ranks; every rank must call this."""
        whole = parts.detach().clone()
        dist.all_reduce(whole)
        return whole


class WholeBatches(Replicas):
    """Every rank has a whole batch of its own, so the rows of an iteration grow with the ranks."""

    def shared_rows(self, rows: int, parts: Parts) -> int:
        """Rows of all ranks' batches together.

        Raises
        ------
        ConfigError
            The training has its own loader, or too few rows for batches of all ranks.
        """
        world = self.share.world
        if parts.loader is not None:
            raise ConfigError(
                "toggles.ddp_weak makes batches larger, and the loader of Parts(loader=...) makes its own;"
                " use toggles.ddp, or let build() name Parts(data=...)"
            )
        source = parts.data if parts.sampler is None else parts.sampler
        if hasattr(source, "__len__") and len(source) < world * rows:  # type: ignore[arg-type]
            raise ConfigError(
                f"toggles.ddp_weak={world} needs {world} batches of {rows} rows at once, and there are"
                f" {len(source)}; use a smaller workload.batch_size, or fewer ranks"  # type: ignore[arg-type]
            )
        return world * rows


def replicas_of(levels: Levels, context: Context) -> Alone:
    """Choose how this process takes part at the levels of the toggles `ddp` and `ddp_weak`.

    Raises
    ------
    ConfigError
        There is only this process.
    """
    chosen = next((name for name in ("ddp", "ddp_weak") if levels.get(name, "off") != "off"), None)
    if chosen is None:
        return Alone()
    if context.world == 1:
        raise ConfigError(
            f"toggles.{chosen}={levels[chosen]} needs two ranks or more, and this process is alone"
        )
    return (Replicas if chosen == "ddp" else WholeBatches)(context.rank, context.world)


def own_device(context: Context) -> torch.device:
    """The device of this rank; with several GPUs on a node, each rank has another."""
    if context.world == 1 or context.device.type != "cuda":
        return torch.device(context.device.type)
    return torch.device("cuda", context.local_rank % max(context.device.count, 1))
