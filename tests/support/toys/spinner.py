"""A workload whose cost, results and faults are known exactly."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from perfsweep.workloads.api import (
    Check,
    Claim,
    Clock,
    Comparator,
    Context,
    Evidence,
    Level,
    Levels,
    Numbers,
    Parity,
    Toggle,
    Workload,
)
from perfsweep.workloads.errors import ConfigError
from toys.stack import is_timed

SEEN_AT_IMPORT = os.environ.get("PERFSWEEP_TOY", "unset")
_TROUBLES = ("none", "raise", "kill", "segv", "hang", "oom", "exit", "late", "grow")
GATE = os.environ.get("PERFSWEEP_TOY_GATE", "")
"""A folder in which each timing trial takes the next number, and waits until the file `open` allows it."""


@dataclass
class Config:
    """Size of one product, how many make one iteration, and seconds that it sleeps besides, so as to last."""

    size: int = 48
    products: int = 40
    pause_s: float = 0.0


def no_gpu(device: Any) -> str | None:
    return None if device.type == "cuda" else "needs a GPU"


def odd_sizes(config: Config, levels: Levels) -> str | None:
    return "size is odd" if config is not None and config.size % 2 else None


def pass_gate(gate: Path) -> None:
    """Wait until more trials may run, as the file `open` says, than came before this one."""
    number = next(n for n in count() if _is_free(gate / str(n)))
    while number >= int((gate / "open").read_text() or 0):
        time.sleep(0.02)


def _is_free(place: Path) -> bool:
    try:
        place.mkdir()
    except FileExistsError:
        return False
    return True


class Spinner(Workload):
    """Each iteration multiplies a matrix with itself; the sum of the trace is the result."""

    Config = Config
    toggles = (
        Toggle(
            "work",
            (Level("double"), Level("single", witness="products")),
            "do each product twice, or once",
            "toy",
        ),
        Toggle(
            "idle",
            (Level("off"), Level("on", witness="products")),
            "claims to change something and does not",
            "toy",
        ),
        Toggle(
            "sign", (Level("right"), Level("wrong", witness="flips")), "flips a sign in the result", "toy"
        ),
        Toggle(
            "half",
            (Level("off"), Level("on", parity=Parity.TOLERANCE, bounds={"trace": 1e-2})),
            "float32 sums",
            "toy",
        ),
        Toggle("trouble", tuple(map(Level, _TROUBLES)), "fail in a known way", "toy"),
        Toggle("device_only", (Level("off"), Level("on", unsupported=no_gpu)), "acts on a GPU only", "toy"),
        Toggle(
            "after", (Level("off"), Level("on", requires={"work": ("single",)})), "needs work=single", "toy"
        ),
        Toggle("never", (Level("off"), Level("with_odd", refused=odd_sizes)), "refused for odd sizes", "toy"),
        Toggle(
            "variable",
            (Level("off"), Level("on", env={"PERFSWEEP_TOY": "on"})),
            "an environment variable",
            "toy",
        ),
        Toggle("group", (Level("one"), Level("two", ranks=2)), "number of processes", "toy"),
        Toggle("slab", (Level(1),), "a number", "toy", numbers=Numbers(1, 64)),
    )
    claims = (
        Claim("half the work is twice as fast", "toy", "1", ({"work": "single"},), low=1.5, high=2.5),
        Claim("idle helps a lot", "toy", "2", ({"idle": "on"},), kind="qualitative", word="high"),
        Claim("the device does it", "toy", "3", ({"device_only": "on"},), low=2.0),
    )
    checks = (Check("trace"), Check("count", Comparator.IDENTICAL))
    unit = "product"

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        if config.size < 1:
            raise ConfigError(f"workload.size={config.size} must be at least 1")
        self.context, self.levels = context, levels
        self.matrix = np.random.default_rng(context.seed).standard_normal((config.size, config.size))
        self.repeats = 2 if levels["work"] == "double" else 1
        self.pause_s = config.pause_s
        self.products, self.steps, self.flips, self.trace = config.products, 0, 0, []
        self.ranks = float(context.world)
        if GATE and is_timed():
            pass_gate(Path(GATE))
        if levels["trouble"] == "raise":
            raise RuntimeError("the toy was told to raise")

    def step(self, clock: Clock) -> None:
        if self.pause_s:
            time.sleep(self.pause_s)
        with clock.phase("multiply"):
            for _ in range(self.products * self.repeats):
                result = self.matrix @ self.matrix
        with clock.phase("trouble"):
            self._trouble(str(self.levels["trouble"]))
        value = float(np.trace(result.astype(np.float32) if self.levels["half"] == "on" else result))
        if self.levels["sign"] == "wrong":
            self.flips += 1
            value = -value
        self.trace.append(value)
        self.steps += 1
        self.context.log({"trace": value})

    def _trouble(self, kind: str) -> None:
        match kind:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "segv":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hang":
                time.sleep(600)
            case "oom":
                raise MemoryError("the toy was told to run out of memory")
            case "exit":
                os._exit(3)
            case "grow":
                self.grown = np.ones(2 << 27)  # 2 GiB, and then wait for whoever limits memory
                time.sleep(60)
            case "late" if is_timed() and self.steps > 3:
                raise ValueError("the toy failed while being timed")

    def progress(self) -> float:
        return float(self.steps * self.products)

    def evidence(self) -> Evidence:
        trace = np.asarray(self.trace)
        return Evidence({"trace": trace})

    def numbers(self) -> dict[str, float]:
        seen = {"ranks": self.ranks, "variable": float(SEEN_AT_IMPORT == "on")}
        return {"count": float(len(self.trace)), **seen}

    def counters(self) -> dict[str, float]:
        return {"products": self.steps * self.products * self.repeats, "flips": self.flips}

    def data_digest(self) -> str:
        return "toy"
