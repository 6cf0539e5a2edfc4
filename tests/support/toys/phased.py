"""A torch workload of which FLOPs, bytes, compiled graphs and debug lines are known exactly."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import torch

from perfsweep.workloads.api import Check, Clock, Context, Evidence, Level, Levels, Toggle, Workload

SIZE = 64
FLOPS = 2 * SIZE**3
MATRIX_BYTES = 4 * SIZE**2


@dataclass
class Config:
    """Whether the workload logs as at level DEBUG."""

    debug_log: bool = False


def slow_part() -> None:
    """Two milliseconds that a sampling profiler must find here."""
    end = time.perf_counter() + 0.002
    while time.perf_counter() < end:
        pass


def broken(x: torch.Tensor) -> torch.Tensor:
    """Two graphs with a break between them."""
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


class Phased(Workload):
    """Iterations multiply once or twice in one phase, copy in another, and work in Python outside both."""

    Config = Config
    toggles = (
        Toggle("products", (Level(1), Level(2, witness="products")), "how often it multiplies", "toy"),
        Toggle("compile", (Level("off"), Level("on")), "compile a function that breaks", "toy"),
        Toggle("trouble", (Level("none"), Level("oom"), Level("raise")), "fail in a known way", "toy"),
    )
    checks = (Check("x"),)
    cadence = 2

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        self.levels, self.debug_log = levels, config.debug_log
        self.x = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(context.seed))
        self.target = torch.empty_like(self.x)
        self.function = torch.compile(broken, backend="eager") if levels["compile"] == "on" else broken
        self.steps = 0

    def step(self, clock: Clock) -> None:
        with clock.phase("multiply"):
            for _ in range(int(self.levels["products"])):
                torch.mm(self.x, self.x)
        with clock.phase("copy"):
            self.target.copy_(self.x)
        if self.levels["compile"] == "on":
            self.function(self.x)
        slow_part()
        if self.levels["trouble"] == "oom":
            raise MemoryError("the toy was told to run out of memory")
        if self.levels["trouble"] == "raise":
            raise RuntimeError("the toy was told to raise")
        logging.getLogger("toy").debug("iteration %d, debug_log %s", self.steps, self.debug_log)
        self.steps += 1

    def progress(self) -> float:
        return float(self.steps)

    def evidence(self) -> Evidence:
        return Evidence({"x": self.x})

    def counters(self) -> dict[str, float]:
        return {"products": float(self.steps * int(self.levels["products"]))}
