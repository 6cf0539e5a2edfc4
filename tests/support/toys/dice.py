"""A workload whose result depends on the seed, with levels that draw differently."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfsweep.workloads.api import Check, Clock, Context, Evidence, Level, Levels, Parity, Toggle, Workload


@dataclass
class Config:
    """Numbers added up in one iteration."""

    numbers: int = 2000


def draws(value: str) -> Level:
    return Level(value, parity=Parity.STOCHASTIC, bounds={"score": 0.01})


class Dice(Workload):
    """The score is that of the seed; a level adds noise of its own, or moves it by 5 %."""

    Config = Config
    toggles = (
        Toggle(
            "draw",
            (Level("own"), draws("fair"), draws("biased"), draws("wide"), draws("same")),
            "draw at random",
            "toy",
        ),
    )
    checks = (Check("score"),)
    unit = "roll"

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        self.values = np.arange(config.numbers, dtype=float)
        seed = np.random.default_rng(context.seed).normal(1.0, 0.05)
        own = (-1.0) ** context.seed  # of mean zero and spread one over an even number of seeds
        moved = {
            "own": 0.0,
            "same": 0.0,
            "fair": 0.001 * own,
            "biased": 0.05 + 0.001 * own,
            "wide": 0.03 * own,
        }
        self.score, self.steps = seed * (1 + moved[str(levels["draw"])]), 0

    def step(self, clock: Clock) -> None:
        self.values.sum()
        self.steps += 1

    def progress(self) -> float:
        return float(self.steps)

    def evidence(self) -> Evidence:
        return Evidence({}, {"score": self.score})
