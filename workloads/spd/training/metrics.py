"""What is read of losses and importances, and losses that are no numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from perfsweep.workloads.errors import PerfsweepError
from perfsweep.workloads.spd.maths.sites import Stacks, unstack

ALIVE = 0.1  # an importance above this counts as needed


class DivergedError(PerfsweepError):
    """A loss that is no number."""


def needed(lower: Stacks) -> dict[str, Tensor]:
    """How many subcomponents of each module a position needs on average []."""
    return {name: (ci > ALIVE).float().sum(-1).mean() for name, ci in unstack(lower).items()}


def refuse_nan(step: int, row: Mapping[str, float], known: str = "") -> None:
    """Stop a training whose loss is no number, before a checkpoint of it replaces a good one.

    Raises
    ------
    DivergedError
        A loss is no number.
    """
    for name, value in row.items():
        if name.startswith("train/loss/") and not math.isfinite(value):
            raise DivergedError(
                f"{name} is {value} at step {step}{known}: the training has diverged; lower workload.lr and"
                " continue from the last checkpoint with workload.resume"
            )
