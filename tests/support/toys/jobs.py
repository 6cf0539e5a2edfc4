"""A job-shaped workload: it counts down and ends."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from perfsweep.workloads.api import (
    Check,
    Clock,
    Comparator,
    Context,
    Evidence,
    Level,
    Levels,
    Toggle,
    Workload,
)


@dataclass
class Config:
    """Iterations of one job."""

    length: int = 5


class Countdown(Workload):
    """A job of a known length; `skip` ends it early, doing fewer units."""

    Config = Config
    toggles = (
        Toggle("pause_ms", (Level(4), Level(1)), "sleep in each iteration", "toy"),
        Toggle("skip", (Level("none"), Level("half")), "end early", "toy"),
    )
    checks = (Check("left", Comparator.IDENTICAL),)
    shape = "job"
    unit = "tick"

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        self.length, self.levels = config.length, levels
        self.jobs = 0
        self.reset()

    def reset(self) -> None:
        self.ticks = 0
        self.jobs += 1

    def done(self) -> bool:
        return self.ticks >= (self.length // 2 if self.levels["skip"] == "half" else self.length)

    def step(self, clock: Clock) -> None:
        time.sleep(float(self.levels["pause_ms"]) / 1000)
        self.ticks += 1

    def progress(self) -> float:
        return float(self.ticks)

    def evidence(self) -> Evidence:
        return Evidence({"left": [0]})

    def keep(self, folder: Path) -> None:
        (folder / "ticks.txt").write_text(f"{self.ticks}\n")

    def counters(self) -> dict[str, float]:
        return {"jobs": float(self.jobs)}
