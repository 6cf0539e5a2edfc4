"""Language models in float64, and LoRA trainings that have learned: for tests of additions to frozen ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.latentwire.maths.attention import KERNELS
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath, Path
from perfsweep.workloads.latentwire.maths.trainables import LowRank
from perfsweep.workloads.latentwire.presets import LMS, LORA_TARGETS, LMConfig
from perfsweep.workloads.latentwire.workload import LatentWire

LORA = {"lora_rank": 4, "lora_targets": list(LORA_TARGETS)}
BOTH = {**LORA, "deep_prefix": True}
ROWS, LENGTH = 2, 7


def build(attend="eager", name="nano-q", dtype=torch.float64, recompute="off") -> CausalLM:
    """With biases and grouped queries."""
    lm = CausalLM(LMS[name], torch.Generator().manual_seed(0), dtype)
    lm.path = Path(LayerPath(KERNELS[attend], recompute))
    return lm


def inputs(config: LMConfig = LMS["nano-q"]) -> Tensor:
    return torch.randn(
        ROWS, LENGTH, config.d_model, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


def with_values(module: Any, seed: int = 3) -> Any:
    """Where a training would have brought it: B is zero at first, and then nothing could be told apart."""
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, LowRank):
            drawn = 0.1 * torch.randn(part.b.shape, generator=generator)
            part.b.data.copy_(drawn)
    return module


def distance(found: Tensor, expected: Tensor) -> float:
    return ((found.double() - expected.double()).norm() / expected.double().norm()).item()


def derivatives(out: Tensor, of: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(4)
    return list(torch.autograd.grad((out * torch.randn_like(out)).sum(), of))


def learn(made: LatentWire) -> LatentWire:
    """A training whose additions are not zero any more."""
    for number, trained in enumerate(made.arm.trained):
        with_values(trained, 10 + number)
    return made
