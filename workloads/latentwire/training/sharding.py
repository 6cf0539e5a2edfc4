"""Frozen models over several devices: layers split between GPUs, or each layer's weights among ranks."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data.batches import Shape
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath, run_layer
from perfsweep.workloads.latentwire.maths.passes import LayerContext
from perfsweep.workloads.latentwire.presets import NORMS


def check_shards(config: LatentWireConfig, shape: Shape, examples: int, world: int) -> None:
    """Refuse windows in which ranks would run different passes, and wait for one another without end.

    Raises
    ------
    ConfigError
        Ranks have different numbers of rows, or fill the teacher's cache at different times.
    """
    if shape.effective % world or examples % shape.effective or config.teacher_fill == "lazy":
        raise ConfigError(
            "toggles.parallel=fsdp: all ranks must run the same passes:"
            f" effective_batch={shape.effective} must divide into {world} and divide the {examples} examples,"
            " with workload.teacher_fill=setup"
        )


def split_layers(model: CausalLM, devices: list[torch.device]) -> None:
    """Put runs of layers on one device after the other, like ``device_map="auto"``; one works at a time."""
    per_device = -(-len(model.layers) // len(devices))
    for number, layer in enumerate(model.layers):
        layer.to(devices[number // per_device])


class _Held:
    """A matrix with an optional bias out of gathered weights, used like `Weight`."""

    def __init__(self, matrix: Tensor, bias: Tensor | None) -> None:
        self.matrix, self.bias = matrix, bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.matrix, self.bias)

    def part(self, x: Tensor, first: int, end: int | None) -> Tensor:
        return F.linear(x, self.matrix[first:end], None if self.bias is None else self.bias[first:end])


class ShardedLayer(nn.Module):
    """One layer of which every rank keeps an equal part of all weights.

    A pass gathers the whole layer, uses it and frees it; the backward pass gathers it again and recomputes
    the layer.
    """

    def __init__(self, layer: nn.Module, rank: int, world: int, counts: Counter[str]) -> None:
        super().__init__()
        named = list(layer.named_parameters())
        flat = torch.cat([p.detach().flatten() for _, p in named])
        self._size = -(-flat.numel() // world)
        padded = F.pad(flat, (0, self._size * world - flat.numel()))
        self.shard = nn.Parameter(
            padded[rank * self._size : (rank + 1) * self._size].clone(), requires_grad=False
        )
        self._shapes = [(name, p.shape) for name, p in named]
        self._world, self._counts = world, counts

    def gathered(self) -> Any:
        """The whole layer, for as long as the result is held."""
        flat = self.shard.new_empty(self._size * self._world)
        dist.all_gather_into_tensor(flat, self.shard.detach())
        self._counts["gathered_bytes"] += flat.numel() * flat.element_size()
        parts, offset = dict[str, Tensor](), 0
        for name, shape in self._shapes:
            parts[name] = flat[offset : offset + shape.numel()].view(shape)
            offset += shape.numel()
        matrices = {name.removesuffix(".matrix") for name in parts if name.endswith(".matrix")}
        held = {name: _Held(parts[f"{name}.matrix"], parts.get(f"{name}.bias")) for name in matrices}
        return SimpleNamespace(**held, **{name: parts.get(name) for name in NORMS})


def _gather_and_run(
    path: LayerPath, config: Any, layer: ShardedLayer, x: Tensor, context: LayerContext
) -> Any:
    return run_layer(path, config, layer.gathered(), x, context)


def run_sharded(path: LayerPath, config: Any, layer: ShardedLayer, x: Tensor, context: LayerContext) -> Any:
    """As `run_layer` for a sharded layer."""
    if torch.is_grad_enabled():
        return checkpoint(
            _gather_and_run, path, config, layer, x, context, use_reentrant=False, preserve_rng_state=False
        )
    return _gather_and_run(path, config, layer, x, context)


def shard(model: CausalLM, rank: int, world: int, counts: Counter[str]) -> None:
    """Keep one rank's part of every layer; embedding table, head and final norm stay whole."""
    model.layers = nn.ModuleList(ShardedLayer(layer, rank, world, counts) for layer in model.layers)
    model.chosen.block = run_sharded
    model.chosen.sharded = True
