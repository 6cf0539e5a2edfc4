"""The update of an iteration: clipped gradients, the optimiser's implementation, the schedule of the rate."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.errors import ConfigError, UnsupportedHere
from perfsweep.workloads.training.parts import Parts

UPDATES: dict[str, dict[str, Any]] = {
    # PyTorch's default is `foreach` on CUDA and the loop elsewhere; the baseline is the loop everywhere.
    "default": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}
"""Options of an optimiser of torch.optim for each level of the toggle `optimizer`."""


def optimizer_of(
    make: Callable[..., Optimizer], parameters: Iterable[Tensor | dict[str, Any]], level: LevelValue
) -> Optimizer:
    """Make the optimiser with the implementation of `level`; options that it does not have are left out.

    Raises
    ------
    UnsupportedHere
        The optimiser has no such implementation, or none for these parameters on their device.
    """
    values, options = list(parameters), dict(UPDATES[str(level)])
    while True:
        try:
            return make(values, **options)
        except TypeError as error:
            unknown = _UNKNOWN.search(str(error))
            if unknown is None or unknown[1] not in options:
                raise
            if options.pop(unknown[1]):
                raise UnsupportedHere(
                    f"optimizer={level}: {unknown[1]} is no option of this optimiser"
                ) from error
        except RuntimeError as error:
            if not options.get("fused") or "fused" not in str(error):
                raise
            raise UnsupportedHere(f"optimizer={level}: {str(error).splitlines()[0]}") from error


_UNKNOWN = re.compile(r"unexpected keyword argument '(foreach|fused)'")


Clip = Callable[[torch.optim.Optimizer, torch.amp.GradScaler], None]
"""Called between the backward pass and the update."""


def clipping_of(parts: Parts, model: nn.Module) -> Clip:
    """Choose how gradients are clipped: all of them by norm or value, each group by its own norm, or not."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if parts.clip_value is not None:
        return _unscaled(torch.nn.utils.clip_grad_value_, [(parameters, parts.clip_value)])
    each = [(group["params"], group.get("clip_norm")) for group in parts.groups]
    limited = [(some, limit) for some, limit in [*each, (parameters, parts.clip_norm)] if limit is not None]
    return _unscaled(torch.nn.utils.clip_grad_norm_, limited) if limited else _no_clipping


def _unscaled(clip: Callable[..., object], limited: list[tuple[list[nn.Parameter], float]]) -> Clip:
    def unscale_and_clip(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
        # The limit is for unscaled gradients; a scaled loss makes them tens of thousands of times as large.
        scaler.unscale_(optimizer)
        for parameters, limit in limited:
            clip(parameters, limit)

    return unscale_and_clip


def _no_clipping(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
    pass


class Schedule:
    """Steps the scheduler of `Parts.schedule`; without a scheduler it does nothing."""

    def __init__(self, parts: Parts, optimizer: torch.optim.Optimizer) -> None:
        self._moment = parts.schedule_every
        self._scheduler = parts.schedule(optimizer) if parts.schedule else None
        self._watches = isinstance(self._scheduler, ReduceLROnPlateau)
        if self._watches and self._moment != "evaluation":
            raise ConfigError(
                "Parts(schedule=...) is a ReduceLROnPlateau, which looks at a figure of an evaluation; add"
                " schedule_every='evaluation'"
            )

    def after(self, moment: str, figures: Mapping[str, float] | None = None) -> None:
        """Step after an iteration, an epoch or an evaluation, whose first figure shows a plateau."""
        if self._scheduler is None or moment != self._moment:
            return
        if self._watches:
            self._scheduler.step(next(iter((figures or {}).values())))  # type: ignore[arg-type]
        else:
            self._scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the scheduler; empty without one."""
        return self._scheduler.state_dict() if self._scheduler else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state`; the state of the optimiser must be restored before."""
        if self._scheduler:
            self._scheduler.load_state_dict(dict(state))
