"""Precision of the matrix products of a training: sixteen bits (`amp`) and TF32 (`tf32`)."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from perfsweep.workloads.errors import UnsupportedHere

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(level: str, device: torch.device) -> AbstractContextManager[Any]:
    """The context of the forward pass at a level of the toggle `amp`; it can be entered repeatedly."""
    return contextlib.nullcontext() if level == "off" else torch.autocast(device.type, AUTOCAST[level])


class OwnAutocast(AbstractContextManager[Any]):
    """The training's own context, made again each time that it is entered."""

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make = make

    def __enter__(self) -> Any:
        self._inside = self._make()
        return self._inside.__enter__()

    def __exit__(self, *exception: Any) -> bool | None:
        return self._inside.__exit__(*exception)

    def level(self, device: torch.device) -> str:
        """The level of `amp` with the type that this context casts to."""
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
        Both are set: the training would be cast twice, and the effect would not be that of the level.
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
    """Scales the loss at ``amp=fp16``, where gradients would underflow; at other levels it does nothing."""
    return torch.amp.GradScaler(device.type, enabled=level == "fp16", **how)


def set_tf32(on: bool, undo: contextlib.ExitStack, *, strict: bool = False) -> None:
    """Let float32 matrix products run in TF32 or not; `undo` restores the process's settings.

    Convolutions keep PyTorch's default, TF32 on, as in a naive script. With `strict` they follow `on` too:
    the rounding of TF32 would hide smaller mistakes.
    """
    keep_precisions(undo)
    torch.set_float32_matmul_precision("high" if on else "highest")
    torch.backends.cudnn.allow_tf32 = on or not strict


_PRODUCTS, _CUDNN = ("cuda.matmul", "mkldnn.matmul"), ("cudnn.conv", "cudnn.rnn")


def keep_precisions(undo: contextlib.ExitStack) -> None:
    """Have `undo` restore the current precision of float32 products and convolutions."""
    cudnn = torch.backends.cudnn
    _keep(undo, torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, _PRODUCTS)
    _keep(undo, lambda: cudnn.allow_tf32, lambda value: setattr(cudnn, "allow_tf32", value), _CUDNN)


def _keep(
    undo: contextlib.ExitStack, read: Callable[[], Any], write: Callable[[Any], None], names: Sequence[str]
) -> None:
    """Have `undo` restore the current setting.

    torch's older getters raise once the newer interface has set a precision; then `undo` restores that one.
    """
    try:
        undo.callback(write, read())
    except RuntimeError:
        for owner in map(_owner, names):
            undo.callback(setattr, owner, "fp32_precision", owner.fp32_precision)


def _owner(name: str) -> Any:
    return operator.attrgetter(name)(torch.backends)


def fp32_precisions() -> dict[str, str]:
    """The precision of float32 products by library: ``ieee``, ``tf32`` or ``bf16``.

    Read from torch's newer interface, which has the settings of both interfaces.
    """
    found = {name: _owner(name).fp32_precision for name in (*_PRODUCTS, *_CUDNN)}
    return {name: "ieee" if kind == "none" else kind for name, kind in found.items()}


def tf32_is_on() -> bool:
    """Whether the process computes float32 matrix products in TF32: the proof that the level takes effect."""
    return torch.backends.cuda.matmul.fp32_precision == "tf32"
