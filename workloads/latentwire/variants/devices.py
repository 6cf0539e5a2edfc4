"""Several devices that share a step, and a device's memory: given back, or run out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Baseline, Device, Level, Levels, Toggle
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.variants.gradients import random_states, restore
from perfsweep.workloads.latentwire.variants.part import REDUCED, Part
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.latentwire.data.batches import Piece, Shape, Window


class ReleasedEachStep(Part):
    """Memory goes back to the device after every step."""

    def release(self, step: int) -> None:
        """Give memory back to the device."""
        import torch

        torch.cuda.empty_cache()
        self.counts["cache_releases"] += 1


class ReleasedEachEpoch(ReleasedEachStep):
    """Memory goes back to the device after the last step of an epoch."""

    def release(self, step: int) -> None:
        """Give memory back to the device, if step `step` is the last."""
        if step % self.per_epoch == 0:
            super().release(step)

    def periods(self) -> list[int]:
        """Steps after which something comes again."""
        return [*super().periods(), self.per_epoch]


class LayersSplit(Part):
    """Runs of layers lie on one GPU after the other."""

    def spread(self) -> None:
        """Put them there."""
        import torch

        from perfsweep.workloads.latentwire.training.sharding import split_layers

        for model in self.models.values():
            split_layers(model.lm, [torch.device("cuda", i) for i in range(torch.cuda.device_count())])


class Ranks(Part):
    """Processes whose gradients of what is trained are summed, in one flat message."""

    def add_up(self) -> None:
        """Sum gradients; parameters unused here count as zero.

        Losses have global denominators, so the sum is the gradient of the whole window: nothing is averaged.
        """
        import torch
        import torch.distributed as dist

        if self.context.world == 1:
            return
        flat = torch.cat(
            [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.parameters]
        )
        dist.all_reduce(flat)
        self.counts["reduced_bytes"] += flat.numel() * flat.element_size()
        parts = flat.split([p.numel() for p in self.parameters])
        for p, part in zip(self.parameters, parts, strict=True):
            p.grad = part.view_as(p)

    def gathered(self, by_model: Mapping[int, Any]) -> list[Any]:
        """What every model has, in their order, whichever rank computes it."""
        import torch.distributed as dist

        parts: list[Any] = [None] * self.context.world
        if self.context.world > 1:
            dist.all_gather_object(parts, dict(by_model))
        else:
            parts = [by_model]
        return super().gathered({number: value for part in parts for number, value in part.items()})

    def least(self, number: int) -> int:
        """The smallest of all ranks' numbers."""
        return min(self.gathered({self.context.rank: number}))

    def total(self, terms: Tensor) -> Tensor:
        """Terms summed over ranks."""
        import torch.distributed as dist

        if self.context.world > 1:
            dist.all_reduce(terms)
        return terms


class RowsSplit(Ranks):
    """Every rank has rows of its own."""

    @property
    def row_share(self) -> tuple[int, int]:
        """This rank among all."""
        return self.context.rank, self.context.world

    def window_shape(self) -> Shape:
        """How windows are cut.

        Raises
        ------
        ConfigError
            There are fewer rows than ranks.
        """
        shape, (rank, world) = super().window_shape(), self.row_share
        if self.batch < world:
            raise ConfigError(
                f"toggles.effective_batch={self.batch} leaves ranks without rows: use at least {world}"
            )
        return dataclasses.replace(shape, rank=rank, world=world)


class ModelsSplit(Ranks):
    """Every rank has models of its own."""

    def own_models(self, models: int) -> list[int]:
        """Models that this rank computes."""
        return list(range(models))[self.context.rank :: self.context.world]


class WeightsSplit(RowsSplit):
    """Every rank has rows and a part of each layer's weights."""

    def spread(self) -> None:
        """Cut the layers; last, as filling a cache waits for others and must not gather."""
        from perfsweep.workloads.latentwire.training.sharding import check_shards, shard

        rank, world = self.row_share
        if world > 1:
            check_shards(self.config, self.shape, len(self.corpus), world)
            for model in self.models.values():
                shard(model.lm, rank, world, self.counts)


def _single_model(config: Any, levels: Levels) -> str | None:
    return (
        None
        if config.model_count > 1
        else f"workload.models={config.model_count} leaves the other GPUs without a model"
    )


def _needs_two_gpus(device: Device) -> str | None:
    return None if device.type == "cuda" and device.count > 1 else "needs two GPUs"


_RANKS: dict[str, Any] = {
    "ranks": 2,
    "bounds": REDUCED,
    "unsupported": shared.needs_ranks,
    "witness": "ranks",
}


class Backoff(Part):
    """A window that does not fit is started over with pieces of half the size.

    It has the same rows and the same random state; the size that worked is remembered for each width of
    sources.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.largest: dict[int, int] = {}

    def gradients(self, window: Window) -> Tensor:
        """Gradients of a window into the parameters; returns its terms [6]."""
        import torch

        states = random_states()
        while True:
            pieces = self._fitted(window.pieces)
            try:
                return self.all_pieces(pieces)
            except torch.OutOfMemoryError as error:
                self._shrink(pieces, error)
            # Outside the handler: the traceback held the failed pass's tensors.
            self.optimizer.zero_grad(set_to_none=True)
            restore(states)
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()

    def _shrink(self, pieces: list[Piece], error: Exception) -> None:
        rows = max(len(piece) for piece in pieces)
        if rows == 1:
            raise ConfigError(
                "memory ran out with a single row (micro_batch=1): use a smaller workload.preset or"
                " grad_checkpointing=on"
            ) from error
        self.counts["retries"] += 1
        for piece in pieces:
            self.largest[piece.source.shape[1]] = rows // 2

    def _fitted(self, pieces: list[Piece]) -> list[Piece]:
        fitted = []
        for piece in pieces:
            size = min(self.largest.get(piece.source.shape[1], len(piece)), len(piece))
            fitted += (
                [piece]
                if size >= len(piece)
                else [piece.rows(i, i + size) for i in range(0, len(piece), size)]
            )
        return fitted


VARIANTS = (
    Variant(
        shared.empty_cache(every={"witness": "cache_releases"}, source="Memory 4"),
        {"step": ReleasedEachStep, "epoch": ReleasedEachEpoch},
    ),
    Variant(
        Toggle(
            "parallel",
            (
                Level("single"),
                Level("layer_split", unsupported=_needs_two_gpus, witness="devices_used"),
                Level("ddp", per_gpu=True, **_RANKS),
                Level("model_per_gpu", refused=_single_model, **_RANKS),
                Level("fsdp", per_gpu=True, **_RANKS),
            ),
            "how several devices share the work",
            "Memory 3",
            baselines=(
                Baseline("layer_split", device=lambda device: device.type == "cuda" and device.count > 1),
            ),
        ),
        {"layer_split": LayersSplit, "ddp": RowsSplit, "model_per_gpu": ModelsSplit, "fsdp": WeightsSplit},
    ),
    Variant(
        Toggle(
            "oom",
            choices("die", "backoff", witness="retries"),
            "halve the piece when memory runs out",
            "Risks",
        ),
        {"backoff": Backoff},
    ),
)
