"""Workloads that cannot be timed, each for another reason, and one that tells of its surroundings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from perfsweep.workloads.api import Check, Clock, Context, Evidence, Level, Levels, Toggle, Workload


@dataclass
class Config:
    """Nothing to configure."""


class Endless(Workload):
    """Iterations that run out after `left`, or do no work at all."""

    Config = Config
    toggles = (Toggle("units", (Level("one"), Level("none")), "units of one iteration", "toy"),)
    checks = (Check("steps"),)
    left = 10**6

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        self.each, self.steps = float(levels["units"] == "one"), 0

    def step(self, clock: Clock) -> None:
        if self.steps >= self.left:
            raise StopIteration
        self.steps += 1

    def progress(self) -> float:
        return self.steps * self.each

    def evidence(self) -> Evidence:
        return Evidence({}, {"steps": float(self.steps)})


class EndsInWarmUp(Endless):
    """Three iterations and no more."""

    left = 3


class NoJob(Endless):
    """A job that is done before it begins."""

    shape = "job"

    def done(self) -> bool:
        return True

    def reset(self) -> None:
        self.steps = 0


class Compiled(Endless):
    """Leaves a file where compiled code lies, tells which it found there, and notes that it was closed."""

    toggles = (
        *Endless.toggles,
        Toggle(
            "code",
            (
                Level("plain"),
                Level("tuned", autotunes=True),
                Level("anew", compiles_anew=True),
                Level("spread", ranks=2, unsupported=lambda device: f"sees {device.count}"),
            ),
            "how it is compiled",
            "toy",
        ),
    )
    closed = 0

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        super().setup(config, levels, context)
        place = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        self.found = sorted(file.name for file in place.iterdir())
        (place / str(levels["code"])).touch()

    def close(self) -> None:
        type(self).closed += 1
