"""A running sum whose arms go wrong where evidence does not look."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfsweep.workloads.api import Check, Clock, Context, Evidence, Level, Levels, Toggle, Workload
from toys.stack import is_timed

FRESH = 30
"""Iterations after which a stale arm does nothing."""


@dataclass
class Config:
    """Rows of the sum."""

    rows: int = 4000


class Cheats(Workload):
    """Each iteration adds a random row; `norm` is that of the sum."""

    Config = Config
    toggles = (
        Toggle("honest", (Level("no"), Level("yes")), "nothing", "toy"),
        Toggle("stale", (Level("no"), Level("yes")), "stop working after a while", "toy"),
        Toggle("timed_half", (Level("no"), Level("stack"), Level("prepared")), "do half when timed", "toy"),
    )
    checks = (Check("total"),)
    unit = "row"

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        self.levels, self.rows, self.steps, self.prepared = levels, config.rows, 0, False
        self.random = np.random.default_rng(context.seed)
        self.total = np.zeros(config.rows)

    def prepare_evidence(self) -> None:
        self.prepared = True

    def _half(self) -> bool:
        how = self.levels["timed_half"]
        return (how == "stack" and is_timed()) or (how == "prepared" and not self.prepared)

    def step(self, clock: Clock) -> None:
        row = self.random.random(self.rows)
        if self._half():
            row[::2] = 0.0
        self.steps += 1
        self.total += row
        if self.steps > FRESH and self.levels["stale"] == "yes":
            self.total[:] = 0.0

    def progress(self) -> float:
        return float(self.steps * self.rows)

    def numbers(self) -> dict[str, float]:
        return {"norm": float(np.linalg.norm(self.total))}

    def evidence(self) -> Evidence:
        return Evidence({"total": self.total})
