"""Several GPUs or processes that share a step: layers, rows, models or weights are split."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Baseline, Device, Level, Levels, Toggle
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.variants.part import REDUCED, Part
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.latentwire.data.batches import Shape


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

VARIANTS = (
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
)
