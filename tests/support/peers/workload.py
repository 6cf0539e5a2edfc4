"""The step that all tools time, as a workload of perfsweep's."""

from __future__ import annotations

from dataclasses import dataclass

from peers.step import PLANTS, step
from perfsweep.workloads.api import Check, Clock, Context, Evidence, Level, Levels, Toggle, Workload

BASE = -1
"""The level of the base, which does as much as an arm with nothing planted."""

HALF_AS_MUCH_AGAIN = 50
"""A plant that every tool finds: whether its figure is right is what is asked."""


@dataclass
class Config:
    """Nothing to choose."""


class Peer(Workload):
    """One step an iteration."""

    Config = Config
    toggles = (
        Toggle(
            "plant",
            tuple(map(Level, (BASE, *PLANTS, HALF_AS_MUCH_AGAIN))),
            "per cent of planted work",
            "peers",
        ),
    )
    checks = (Check("product"),)
    unit = "step"

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        self._step, self._steps = step(max(0, int(str(levels["plant"])))), 0

    def step(self, clock: Clock) -> None:
        self._products = self._step()
        self._steps += 1

    def progress(self) -> float:
        return float(self._steps)

    def evidence(self) -> Evidence:
        return Evidence({"product": self._products[-1]}, {})
