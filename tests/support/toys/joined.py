"""A workload of several ranks: what each adds to a sum is its own, and each says where it ran."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from perfsweep.workloads.api import Check, Clock, Context, Evidence, Level, Levels, Toggle, Workload

FAULT = os.environ.get("PERFSWEEP_TOY_FAULT", "")
"""Rank and what becomes of it, such as ``1 kill``: only where it is to be tried."""


@dataclass
class Config:
    """Seconds that the last rank sleeps in each iteration, so that the others wait for it."""

    late_s: float = 0.0


class Joined(Workload):
    """Each iteration adds up a tensor over all ranks; `spread` says how many these are."""

    Config = Config
    toggles = (
        Toggle(
            "spread", (Level("one"), Level("two", ranks=2), Level("four", ranks=4)), "number of ranks", "toy"
        ),
    )
    checks = (Check("total"),)
    unit = "sum"

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        self.config, self.context, self.steps = config, context, 0
        self.total = torch.zeros(64, 64, dtype=torch.float64)
        place = Path(context.cache_dir, f"rank{context.rank}of{context.world}.txt")
        facts = (context.node, context.local_rank, context.local_world, context.master)
        place.write_text(
            " ".join([os.environ.get("SLURMD_NODENAME", "?"), str(os.getpid()), *map(str, facts)])
        )
        rank, _, self.fault = FAULT.partition(" ")
        if rank != str(context.rank) or context.world == 1:
            self.fault = ""

    def step(self, clock: Clock) -> None:
        if self.context.rank == self.context.world - 1:
            time.sleep(self.config.late_s)
        value = torch.full((64, 64), 1.0 / self.context.world, dtype=torch.float64)
        if self.context.world > 1:
            dist.all_reduce(value)
        self.total += value
        self.steps += 1
        self._fail()

    def _fail(self) -> None:
        match self.fault:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                Path(self.context.cache_dir, "stopped").touch()
                time.sleep(600)

    def progress(self) -> float:
        return float(self.steps)

    def evidence(self) -> Evidence:
        return Evidence({"total": self.total})

    def counters(self) -> dict[str, float]:
        return {"sums": float(self.steps)}

    def data_digest(self) -> str:
        return "toy"

    def numbers(self) -> dict[str, Any]:
        return {"mean": float(self.total.mean())}
