"""The learning rate over the course of a training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.training.parts import Parts


class Schedule:
    """Steps the scheduler of `Parts.schedule` at its moments; without one, nothing ever happens."""

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
        """Step after an iteration, an epoch or an evaluation; a plateau is looked for in its first figure."""
        if self._scheduler is None or moment != self._moment:
            return
        if self._watches:
            self._scheduler.step(next(iter((figures or {}).values())))  # type: ignore[arg-type]
        else:
            self._scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """Return what the scheduler needs to go on; nothing without one."""
        return self._scheduler.state_dict() if self._scheduler else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken, after the optimiser has done so."""
        if self._scheduler:
            self._scheduler.load_state_dict(dict(state))
