"""Sixteen bits and TF32: what `amp` and `tf32` change around the products of a training."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

import torch

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(level: str, device: torch.device) -> AbstractContextManager[Any]:
    """What the forward pass runs under at a level of the toggle `amp`; may be entered again and again."""
    return contextlib.nullcontext() if level == "off" else torch.autocast(device.type, AUTOCAST[level])


def grad_scaler(level: str, device: torch.device) -> torch.amp.GradScaler:
    """Scales the loss at ``amp=fp16``, whose gradients underflow otherwise; elsewhere passes all through."""
    return torch.amp.GradScaler(device.type, enabled=level == "fp16")


def set_tf32(on: bool, undo: contextlib.ExitStack, *, strict: bool = False) -> None:
    """Let float32 matrix products run in TF32 or not; `undo` puts the process's settings back.

    Convolutions are left as PyTorch ships them, with TF32 on: a naive script has them so. `strict` takes it
    from them as well, because its rounding would hide a mistake that is smaller.
    """
    undo.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
    undo.callback(setattr, torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)
    torch.set_float32_matmul_precision("high" if on else "highest")
    torch.backends.cudnn.allow_tf32 = on or not strict


def tf32_is_on() -> bool:
    """Whether the process computes float32 matrix products in TF32: the proof that the level acts."""
    return torch.get_float32_matmul_precision() != "highest"
