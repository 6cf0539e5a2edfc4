"""Sixteen bits and TF32: what `amp` and `tf32` change around the products of a training."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from perfsweep.workloads.errors import UnsupportedHere

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(level: str, device: torch.device) -> AbstractContextManager[Any]:
    """What the forward pass runs under at a level of the toggle `amp`; may be entered again and again."""
    return contextlib.nullcontext() if level == "off" else torch.autocast(device.type, AUTOCAST[level])


class OwnAutocast(AbstractContextManager[Any]):
    """What a training states itself, made anew each time that it is entered."""

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make = make

    def __enter__(self) -> Any:
        self._inside = self._make()
        return self._inside.__enter__()

    def __exit__(self, *exception: Any) -> bool | None:
        return self._inside.__exit__(*exception)

    def level(self, device: torch.device) -> str:
        """The level of `amp` that this amounts to: that of the type it casts to."""
        with self:
            on, dtype = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)
        names = {dtype: name for name, dtype in AUTOCAST.items()}
        return names.get(dtype, "off") if on else "off"


def autocast_of(
    level: str, own: Callable[[], AbstractContextManager[Any]] | None, device: torch.device
) -> tuple[AbstractContextManager[Any], torch.amp.GradScaler]:
    """Choose the context of forward passes and the scaler of losses: those of `amp`, or the training's own.

    Raises
    ------
    UnsupportedHere
        Both are asked for: the training would be cast twice, and its effect would be none of the level's.
    """
    if own is None:
        return autocast(level, device), grad_scaler(level, device)
    if level != "off":
        raise UnsupportedHere(
            f"toggles.amp={level} is refused: build() names Parts(autocast=...), so the training states its"
            " own precision and would be cast twice; remove that, or leave amp off"
        )
    stated = OwnAutocast(own)
    return stated, grad_scaler(stated.level(device), device)


def grad_scaler(level: str, device: torch.device, **how: Any) -> torch.amp.GradScaler:
    """Scales the loss at ``amp=fp16``, whose gradients underflow otherwise; elsewhere passes all through."""
    return torch.amp.GradScaler(device.type, enabled=level == "fp16", **how)


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
