"""The paths behind the shared toggles of a training step, each chosen once in `setup`.

A training loop of one's own can use them without `Training`: what stands here is all that a toggle does.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
UPDATES: dict[str, dict[str, Any]] = {
    # PyTorch by itself takes `foreach` on CUDA and the loop elsewhere; the baseline is the loop everywhere.
    "default": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}
"""Options of an optimiser of torch.optim for each level of the toggle `optimizer`."""


def autocast(level: str, device: torch.device) -> AbstractContextManager[Any]:
    """What the forward pass runs under at a level of the toggle `amp`; may be entered again and again."""
    return contextlib.nullcontext() if level == "off" else torch.autocast(device.type, AUTOCAST[level])


def grad_scaler(level: str, device: torch.device) -> torch.amp.GradScaler:
    """Scales the loss at ``amp=fp16``, whose gradients underflow otherwise; passes everything through
    elsewhere."""
    return torch.amp.GradScaler(device.type, enabled=level == "fp16")


def set_tf32(on: bool, undo: contextlib.ExitStack) -> None:
    """Let float32 products run in TF32 or not, convolutions included; `undo` puts the process's settings
    back."""
    undo.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
    undo.callback(setattr, torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)
    torch.set_float32_matmul_precision("high" if on else "highest")
    torch.backends.cudnn.allow_tf32 = on


def compiled(model: nn.Module, level: str) -> Callable[..., Any]:
    """The model as it runs at a level of the toggle `compile`: off, default or reduce_overhead."""
    if level == "off":
        return model
    if level == "default":
        return torch.compile(model)
    graphed = torch.compile(model, mode="reduce-overhead")

    def replay(*inputs: Any) -> Any:
        # what the replay before this one wrote may be overwritten from here on
        torch.compiler.cudagraph_mark_step_begin()
        return graphed(*inputs)

    return replay


def recompute(blocks: Iterable[nn.Module]) -> None:
    """Have the forward pass of each block kept no longer than it runs, and run again in the backward pass."""
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[method-assign]
