"""Several processes that share a step: rows or models are split, the trainables' gradients are summed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """How this process takes part.

    Attributes
    ----------
    level : of the toggle parallel
    rank, world : of the process group; 0 and 1 alone
    local_rank : among the ranks of this node
    """

    level: str
    rank: int = 0
    world: int = 1
    local_rank: int = 0

    @property
    def splits_rows(self) -> bool:
        """Whether every rank has rows of its own."""
        return self.level in ("ddp", "fsdp") and self.world > 1

    def device(self, kind: str) -> torch.device:
        """This rank's device of a kind, made the current one."""
        if kind != "cuda":
            return torch.device(kind)
        torch.cuda.set_device(self.local_rank % max(torch.cuda.device_count(), 1))
        return torch.device("cuda", torch.cuda.current_device())

    def own_models(self, models: int) -> list[int]:
        """Models that this rank computes."""
        if self.level == "model_per_gpu" and self.world > 1:
            return [number for number in range(models) if number % self.world == self.rank]
        return list(range(models))

    def add_up(self, parameters: Sequence[nn.Parameter], counts: Counter[str]) -> None:
        """Sum the gradients of all ranks in one flat message; parameters unused here count as zero.

        Losses have global denominators, so the sum is the gradient of the whole window: nothing is averaged.
        """
        if self.world == 1:
            return
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])
        dist.all_reduce(flat)
        counts["reduced_bytes"] += flat.numel() * flat.element_size()
        for p, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            p.grad = part.view_as(p)

    def gathered(self, by_model: Mapping[int, T]) -> list[T]:
        """What every model has, in their order, whichever rank computes it."""
        parts: list[Any] = [dict(by_model)]
        if self.world > 1:
            parts = [None] * self.world
            dist.all_gather_object(parts, dict(by_model))
        merged = {number: value for part in parts for number, value in part.items()}
        return [merged[number] for number in sorted(merged)]

    def least(self, number: int) -> int:
        """The smallest of all ranks' numbers."""
        return min(self.gathered({self.rank: number}))

    def total(self, terms: Tensor) -> Tensor:
        """Terms summed over ranks."""
        if self.world > 1:
            dist.all_reduce(terms)
        return terms
