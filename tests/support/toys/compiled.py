"""A workload with a compiled step, and compiled code on disk as a toggle."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch._inductor import config as inductor

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Check, Clock, Context, Evidence, Levels, Workload


@dataclass
class Config:
    """Entries of the vector."""

    size: int = 1000


class Compiled(Workload):
    """Each iteration adds up the sines of a vector."""

    Config = Config
    toggles = (
        shared.compile("default", every={"bounds": {"total": 1e-4}}),
        shared.compile_cache(every={"requires": {"compile": ("default",)}}),
    )
    checks = (Check("total"),)
    unit = "step"

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        # Headers compiled ahead, and a look at what the processor can do, take longer than this kernel.
        inductor.cpp_cache_precompile_headers = inductor.cpp.vec_isa_ok = False
        self.x = torch.linspace(0.0, 1.0, config.size, device=context.device.type)
        self.total = torch.zeros(())
        self.steps = 0
        self.function = torch.compile(_total) if levels["compile"] == "default" else _total

    def step(self, clock: Clock) -> None:
        with clock.phase("sum"):
            self.total = self.function(self.x)
        self.steps += 1

    def progress(self) -> float:
        return float(self.steps)

    def evidence(self) -> Evidence:
        return Evidence(tensors={"total": self.total.reshape(1)})


def _total(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x.cos() + x.exp()).sum()
