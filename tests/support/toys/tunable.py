"""A workload that waits as long as a formula says: its best arm, its cliff and its memory are known."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from perfsweep.workloads.api import (
    Check,
    Clock,
    Comparator,
    Context,
    Device,
    Evidence,
    Level,
    Levels,
    Numbers,
    Parity,
    Toggle,
    Workload,
)

MAINS = {"fuse": -0.30, "narrow": -0.12, "extra": 0.05, "share": -0.04}
PAIRS = {("fuse", "narrow"): 0.05, ("fuse", "share"): -0.08}
OPTIMUM, CLIFF, CLIFF_COST = 32, 128, 0.7
BYTES_EACH = 2**20
"""Memory of one unit of the slab."""


@dataclass
class Config:
    """Milliseconds of an iteration in the naive arm at the best size."""

    wait_ms: float = 4.0


def log_cost(levels: Levels) -> float:
    """Log of an arm's time against the naive arm at the best size."""
    on = {name for name in MAINS if levels[name] == "on"}
    size = int(levels["slab"])
    cost = 0.06 * abs(math.log2(size / OPTIMUM)) ** 1.3 + (CLIFF_COST if size >= CLIFF else 0.0)
    return (
        cost
        + sum(MAINS[name] for name in on)
        + sum(value for pair, value in PAIRS.items() if on >= set(pair))
    )


def no_gpu(device: Device) -> str | None:
    return None if device.type == "cuda" else "needs a GPU"


def _switch(name: str, **own: object) -> Toggle:
    return Toggle(name, (Level("off"), Level("on", witness=f"did_{name}", **own)), "changes the wait", "toy")  # type: ignore[arg-type]


class Tunable(Workload):
    """Each iteration waits, with as many bytes in hand as its slab asks for."""

    Config = Config
    toggles = (
        _switch("fuse"),
        _switch("narrow", parity=Parity.TOLERANCE, bounds={"sum": 1e-2}),
        _switch("extra"),
        _switch("share"),
        _switch("wrong"),
        _switch("gpu_only", unsupported=no_gpu),
        Toggle("slab", (Level(1),), "a size", "toy", numbers=Numbers(1, 1024)),
        Toggle(
            "mode",
            (Level("plain"), Level("quick", witness="mode"), Level("slow", witness="mode")),
            "three levels",
            "toy",
        ),
    )
    checks = (Check("sum"), Check("steps", Comparator.IDENTICAL))
    unit = "wait"

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        self.levels, self.steps = levels, 0
        self.seconds = config.wait_ms / 1e3 * math.exp(log_cost(levels))
        self.held = np.ones(BYTES_EACH * int(levels["slab"]), dtype=np.uint8)

    def step(self, clock: Clock) -> None:
        time.sleep(self.seconds)
        self.steps += 1

    def progress(self) -> float:
        return float(self.steps)

    def evidence(self) -> Evidence:
        if self.levels["wrong"] == "on":
            return Evidence({"sum": np.full(3, -1.0), "steps": [self.steps]}, {})
        return Evidence({"sum": np.ones(3), "steps": [self.steps]}, {})

    def counters(self) -> dict[str, float]:
        switched = {
            f"did_{name}": float(self.levels[name] == "on") * self.steps
            for name in (*MAINS, "wrong", "gpu_only")
        }
        return {
            **switched,
            "mode": float({"plain": 0, "quick": 1, "slow": 2}[str(self.levels["mode"])]) * self.steps,
        }
