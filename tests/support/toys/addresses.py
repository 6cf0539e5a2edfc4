"""A workload that tells where its memory lies, and how its strings hash, and what it found imported."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass

import torch

from perfsweep.workloads.api import Check, Clock, Context, Evidence, Level, Levels, Toggle, Workload

PARAMETERS = 6

LIBRARY = "wave"
"""Something that is installed, and that nothing else imports."""


@dataclass
class Config:
    """Values of each parameter."""

    values: int = 1000


class Addresses(Workload):
    """Adds up parameters of a few kilobytes; its numbers are their addresses."""

    Config = Config
    toggles = (Toggle("way", (Level("one"), Level("other")), "nothing at all", "toy"),)
    checks = (Check("sum"),)
    unit = "sum"

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        self.parameters = [torch.ones(config.values) for _ in range(PARAMETERS)]
        self.steps = 0
        self.found_library = LIBRARY in sys.modules
        importlib.import_module(LIBRARY)

    def step(self, clock: Clock) -> None:
        self.sum = float(sum(parameter.sum() for parameter in self.parameters))
        self.steps += 1

    def progress(self) -> float:
        return float(self.steps)

    def numbers(self) -> dict[str, float]:
        addresses = {f"address{i}": float(p.data_ptr()) for i, p in enumerate(self.parameters)}
        return {
            **addresses,
            "hash": float(hash("a string")),
            "found_library": float(self.found_library),
            "padding": float(len(os.environ.get("PERFSWEEP_PADDING", ""))),
        }

    def evidence(self) -> Evidence:
        return Evidence({}, {"sum": self.sum, **self.numbers()})

    def data_digest(self) -> str:
        return "toy"
