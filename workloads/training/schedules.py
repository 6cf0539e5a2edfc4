"""The schedule of the learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.training.parts import Parts


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
