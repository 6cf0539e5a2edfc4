"""What is changed around the calls of a script's outermost modules: code, activations, layout, types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree as pytree

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.changes.loss_scaling import LossScaling
from perfsweep.workloads.script.changes.scene import NO_MODULE, Call, Scene, wrap
from perfsweep.workloads.training.compilation import GRAPHED, compile_call, recompute
from perfsweep.workloads.training.precision import AUTOCAST, autocast, grad_scaler


def compile_obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why no module can be compiled."""
    if reason := scene.own.reasons.get("compile"):
        return f"{reason} itself"
    if not scene.modules:
        return NO_MODULE
    return None


def late_compile_obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why graphs cannot be replayed: the memory of their gradients is overwritten by the next replay."""
    if level not in GRAPHED:
        return None
    watched, resets = scene.watched, scene.own.drops_gradients
    if scene.levels.get("zero_grad") == "zero" or (False in resets and "zero_grad" not in scene.levels):
        return "zeroes gradients, whose memory CUDA graphs overwrite; combine it with toggles.zero_grad=none"
    if watched.total("backward_calls") > watched.total("optimizer_steps"):
        return "adds up gradients of several backward passes, whose memory CUDA graphs overwrite"
    return None


def begin_compile(scene: Scene, level: LevelValue) -> None:
    """Compile what the outermost modules call; their first calls from here on generate the code."""
    for module in scene.modules:
        # What is inside DDP: its own code waits for other processes between its buckets.
        inner = module.module if isinstance(module, DistributedDataParallel) else module
        wrap(inner, partial(compile_call, level=str(level)))
    if level in GRAPHED:
        scene.watched.end_of_iteration.append(torch.compiler.cudagraph_mark_step_begin)


def recompute_obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why no block can be recomputed."""
    if reason := scene.own.reasons.get("grad_checkpointing"):
        return f"{reason} itself"
    if not scene.modules:
        return NO_MODULE
    if any(True for module in scene.modules for _ in _blocks(module, scene.blocks)):
        return None
    missing = f"has no module of the class {scene.blocks}; it " if scene.blocks else ""
    candidates = ", ".join(_repeated(scene)) or "no class of modules"
    return f"{missing}repeats {candidates}: name one to recompute with workload.blocks"


def begin_recompute(scene: Scene, level: LevelValue) -> None:
    """Keep no activations of the blocks."""
    for module in scene.modules:
        recompute(list(_blocks(module, scene.blocks)))


def _blocks(module: nn.Module, name: str) -> Iterator[nn.Module]:
    """The outermost modules of the class `name`."""
    if type(module).__name__ == name:
        yield module
        return
    for child in module.children():
        yield from _blocks(child, name)


def _repeated(scene: Scene) -> list[str]:
    """Classes of modules with children that occur more than once, the most frequent first."""
    inner = (one for module in scene.modules for one in module.modules() if any(True for _ in one.children()))
    counts = Counter(
        type(one).__name__ for one in inner if not isinstance(one, nn.ModuleList | nn.ModuleDict)
    )
    return [name for name, count in counts.most_common(8) if count > 1]


LAST = torch.channels_last


def layout_obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why no memory format can be changed."""
    weights = list(_weights(scene))
    if not weights:
        return "has no convolution over images in the modules it calls"
    if any(one.is_contiguous(memory_format=LAST) and not one.is_contiguous() for one in weights):
        return "keeps its convolutions in channels_last itself"
    if not any(4 in scene.watched.input_dims.get(module, ()) for module in scene.modules):
        return "passes no images, tensors of 4 dimensions, to its outermost modules"
    return None


def begin_layout(scene: Scene, level: LevelValue) -> None:
    """Lay out weights, what the optimisers keep of them, and the inputs of each call again."""
    for module in scene.modules:
        module.to(memory_format=LAST)  # type: ignore[call-overload]
        wrap(module, partial(_with_images, counts=scene.watched.counts))
    for one in scene.watched.made:
        _lay_out(one.state)


def _with_images(call: Call, counts: Counter[str]) -> Call:
    def call_with_images(*args: Any, **kwargs: Any) -> Any:
        named = {name: _laid_out(value, counts) for name, value in kwargs.items()}
        return call(*(_laid_out(value, counts) for value in args), **named)

    return call_with_images


def _laid_out(value: Any, counts: Counter[str]) -> Any:
    if not isinstance(value, Tensor) or value.dim() != 4:
        return value
    counts["channels_last_inputs"] += 1
    return value.contiguous(memory_format=LAST)


def _lay_out(states: dict[Tensor, dict[str, Any]]) -> None:
    """Momenta and gradients as their weights are: updates of unlike layouts take a slower path."""
    for weight, state in states.items():
        if weight.dim() == 4:
            if weight.grad is not None:
                weight.grad = weight.grad.contiguous(memory_format=LAST)
            for name, value in state.items():
                if isinstance(value, Tensor) and value.shape == weight.shape:
                    state[name] = value.contiguous(memory_format=LAST)


def _weights(scene: Scene) -> Iterator[Tensor]:
    for module in scene.modules:
        for one in module.modules():
            if isinstance(one, _ConvNd) and one.weight.dim() == 4:
                yield one.weight


HALVES = tuple(AUTOCAST.values())

FIRST_SCALE = 2.0**12
"""First loss scale. PyTorch's default, 2**16, is meant to overflow at first: updates are skipped until the
scale fits, and each skipped update shifts an arm's losses by one iteration against the baseline's. This scale
seldom overflows, and the smallest gradient that fp16 can hold falls from 6e-8 to 1.5e-11."""


def amp_obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why no module can be autocast."""
    if reason := scene.own.reasons.get("amp"):
        return f"{reason} itself"
    if not scene.modules:
        return NO_MODULE
    if all(_is_of(HALVES, module) for module in scene.modules):
        return "keeps its parameters in 16 bits itself"
    if all(_is_of((torch.float64,), module) for module in scene.modules):
        return "keeps its parameters in float64, which autocast leaves as it is"
    return _scaling_obstacle(scene) if level == "fp16" else None


def _scaling_obstacle(scene: Scene) -> str | None:
    """Why losses cannot be scaled."""
    if scene.watched.closures:
        names = ", ".join(sorted(scene.watched.closures))
        return f"computes gradients in a closure that {names} calls, where no update can be skipped; try bf16"
    if not scene.watched.total("backward_calls"):
        return "is not seen to call backward of a loss, which fp16 must scale"
    if any(type(one).__name__ == "FullyShardedDataParallel" for one in scene.modules):
        return "shards its parameters with FSDP, whose clipping cannot be made to wait for unscaled gradients"
    return None


def prepare_amp(scene: Scene, level: LevelValue) -> None:
    """Put the clipping of gradients where it can be reached: scripts import it by name."""
    if level == "fp16":
        scene.clipping.watch(scene.undo)


def begin_amp(scene: Scene, level: LevelValue) -> None:
    """Autocast the calls of the outermost modules; their outputs are float32 again, as accelerate does it."""
    for module in scene.modules:
        wrap(module, partial(_autocast_call, context=autocast(str(level), _device_of(module))))
    if level == "fp16":
        scaler = grad_scaler("fp16", _device_of(scene.modules[0]), init_scale=FIRST_SCALE)
        LossScaling(scaler, scene.watched, scene.clipping).begin()


def _autocast_call(call: Call, context: AbstractContextManager[Any]) -> Call:
    def call_in_16_bits(*args: Any, **kwargs: Any) -> Any:
        with context:
            result = call(*args, **kwargs)
        if isinstance(result, Tensor):
            return _whole(result)
        return pytree.tree_map_only(Tensor, _whole, result)

    return call_in_16_bits


def _whole(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALVES else tensor


def _is_of(types: Sequence[torch.dtype], module: nn.Module) -> bool:
    return all(parameter.dtype in types for parameter in nn.Module.parameters(module))


def _device_of(module: nn.Module) -> torch.device:
    return next(nn.Module.parameters(module)).device
