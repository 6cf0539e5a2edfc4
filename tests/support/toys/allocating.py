"""A workload whose allocations are known to the byte."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from perfsweep.workloads.api import Check, Clock, Context, Evidence, Level, Levels, Toggle, Workload

KIB = 1024
SMALL, LARGE, INNER = 64 * KIB, 512 * KIB, 256 * KIB


@dataclass
class Config:
    """Nothing to choose."""


class Allocating(Workload):
    """One phase keeps a little, the next takes much beside it, more in a phase of its own, and lets go."""

    Config = Config
    toggles = (Toggle("extra", (Level("off"), Level("on")), "take as much again", "toy"),)
    checks = (Check("x"),)

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        self.x = torch.ones(4)
        self.steps = 0

    def step(self, clock: Clock) -> None:
        with clock.phase("small"):
            kept = torch.empty(SMALL, dtype=torch.uint8)
        with clock.phase("large"):
            taken = torch.empty(LARGE, dtype=torch.uint8)
            with clock.phase("inner"):
                inner = torch.empty(INNER, dtype=torch.uint8)
                del inner
            del taken
        del kept
        self.steps += 1

    def progress(self) -> float:
        return float(self.steps)

    def evidence(self) -> Evidence:
        return Evidence({"x": self.x})
