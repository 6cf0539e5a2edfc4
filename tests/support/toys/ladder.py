"""A workload with a toggle of very many levels, for plans of a size nobody measures."""

from __future__ import annotations

from dataclasses import dataclass

from perfsweep.workloads.api import (
    Check,
    Clock,
    Comparator,
    Context,
    Evidence,
    Level,
    Levels,
    Numbers,
    Toggle,
    Workload,
)


@dataclass
class Config:
    """Nothing to choose."""


class Ladder(Workload):
    """Counts."""

    Config = Config
    toggles = (Toggle("size", (Level(1),), "a number", "toy", numbers=Numbers(1, 100000)),)
    checks = (Check("steps", Comparator.IDENTICAL),)
    unit = "step"

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        self.steps = 0

    def step(self, clock: Clock) -> None:
        self.steps += 1

    def progress(self) -> float:
        return float(self.steps)

    def evidence(self) -> Evidence:
        return Evidence({"steps": [self.steps]}, {})
