"""When the host reads device results: each number in each iteration, or all at once when logged."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from perfsweep.workloads.errors import PerfsweepError
from perfsweep.workloads.spd.maths.sites import Stacks, unstack

ALIVE = 0.1  # an importance above this counts as needed


class DivergedError(PerfsweepError):
    """A loss that is no number."""


def needed(lower: Stacks) -> dict[str, Tensor]:
    """How many subcomponents of each module a position needs on average []."""
    return {name: (ci > ALIVE).float().sum(-1).mean() for name, ci in unstack(lower).items()}


class EagerMetrics:
    """Reads every loss and every module's count in every iteration: each read waits for the device."""

    def __init__(self) -> None:
        self._row: dict[str, float] = {}

    def observe(self, step: int, losses: Mapping[str, Tensor], lower: Stacks) -> None:
        """Take one iteration's losses [] and importances.

        Raises
        ------
        DivergedError
            A loss is no number.
        """
        self._row = {f"train/loss/{name}": loss.item() for name, loss in losses.items()}
        self._row |= {f"train/l0/{name}": count.item() for name, count in needed(lower).items()}
        refuse_nan(step, self._row)

    def check(self, step: int) -> None:
        """Make sure that the last losses are numbers; here they have been read already."""

    def row(self, step: int, extra: Mapping[str, Tensor]) -> dict[str, float]:
        """The row of the last iteration, with more numbers []."""
        return {**self._row, **{name: value.item() for name, value in extra.items()}}


class DeferredMetrics(EagerMetrics):
    """Keeps tensors, and reads them together when a row is asked for. What no row shows is never read."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: tuple[Mapping[str, Tensor], Stacks] = ({}, {})
        self._sound: int | None = None  # the last step whose losses were read, and were numbers

    def observe(self, step: int, losses: Mapping[str, Tensor], lower: Stacks) -> None:
        """Keep the tensors; nothing is computed and nothing read."""
        self._kept = (losses, lower)

    def check(self, step: int) -> None:
        """Read the last losses, before they are saved or judged.

        Raises
        ------
        DivergedError
            A loss is no number.
        """
        if losses := self._kept[0]:
            values = torch.stack([loss.detach().double() for loss in losses.values()]).tolist()
            self._refuse(
                step, {f"train/loss/{name}": value for name, value in zip(losses, values, strict=True)}
            )

    def row(self, step: int, extra: Mapping[str, Tensor]) -> dict[str, float]:
        """The row of the last iteration by one read.

        Raises
        ------
        DivergedError
            A loss is no number.
        """
        losses, lower = self._kept
        named = {f"train/loss/{name}": loss for name, loss in losses.items()}
        named |= {f"train/l0/{name}": count for name, count in needed(lower).items()}
        named |= extra
        values = torch.stack([value.detach().double() for value in named.values()]).tolist()
        found = dict(zip(named, values, strict=True))
        self._refuse(step, found)
        return found

    def _refuse(self, step: int, row: Mapping[str, float]) -> None:
        known = "none had been read" if self._sound is None else f"those of step {self._sound} were numbers"
        refuse_nan(step, row, f" (losses are read when they are logged or saved; before, {known})")
        self._sound = step


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
