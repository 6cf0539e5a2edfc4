"""A workload of a user's own, as the text of its module."""

from __future__ import annotations


def own_workload(imports: str = "", size: str = "1", progress: str = "1.0") -> str:
    """A module whose class `Own` keeps the contract, with what it imports and makes of that."""
    return f"""
from dataclasses import dataclass
from perfsweep.workloads.api import Check, Evidence, Level, Toggle, Workload
{imports}

@dataclass
class Config:
    size: int = {size}

class Own(Workload):
    Config = Config
    toggles = (Toggle("speed", (Level("slow"), Level("fast")), "go faster"),)
    checks = (Check("x"),)
    def setup(self, config, levels, context): ...
    def step(self, clock): ...
    def progress(self): return {progress}
    def evidence(self): return Evidence()
"""
