"""Matrix products, and a delay of known size: that many per cent more of the same products.

The delay is work and not a sleep, so that it stays the same share of an iteration however fast the machine is
just now, and so that a neighbour slows it down as it slows down everything else. An iteration keeps all of
its products until it ends, as a training keeps activations: a machine whose allocator hands memory back and
faults it in again, or whose speed depends on where memory lies, shows it here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from perfsweep.workloads.api import (
    Check,
    Clock,
    Context,
    Evidence,
    Level,
    Levels,
    Numbers,
    Toggle,
    Work,
    Workload,
)
from perfsweep.workloads.errors import ConfigError


@dataclass
class SelftestConfig:
    """Size of the square matrices, products in an undelayed iteration; of 100, one is one per cent."""

    size: int = 96
    products: int = 100


class Selftest(Workload):
    """One iteration multiplies the same two matrices again and again, each time into fresh memory."""

    Config = SelftestConfig
    toggles = (
        Toggle(
            "delay",
            (
                Level(0),
                Level(1, witness="products"),
                Level(3, witness="products"),
                Level(10, witness="products"),
            ),
            "per cent of work added to every iteration",
            "pyperf's way to test a benchmark: a difference that is known",
            numbers=Numbers(1, like=Level(1, witness="products")),
        ),
    )
    checks = (Check("product"),)
    unit = "iteration"

    def setup(self, config: SelftestConfig, levels: Levels, context: Context) -> None:
        if config.size < 1 or config.products < 100:
            raise ConfigError(
                "workload.size must be at least 1 and workload.products at least 100, or 1 % is no product"
            )
        self._config, self._device = config, torch.device(context.device.type)
        generator = torch.Generator().manual_seed(context.seed)
        self._left, self._right = (
            torch.randn(config.size, config.size, generator=generator).to(self._device) for _ in range(2)
        )
        self._each = round(config.products * (1 + float(levels["delay"]) / 100))
        self._steps = 0

    def step(self, clock: Clock) -> None:
        """All products, those of the delay included, go through the same call."""
        products = [torch.mm(self._left, self._right) for _ in range(self._each)]
        self._product = products[-1]
        self._steps += 1

    def progress(self) -> float:
        """Iterations since `setup`."""
        return float(self._steps)

    def evidence(self) -> Evidence:
        """The product, which no delay changes."""
        return Evidence({"product": self._product.cpu()}, {"iterations": self.progress()})

    def counters(self) -> dict[str, float]:
        """Products computed."""
        return {"products": self._steps * self._each}

    def work(self) -> Work:
        """Without the delay, which is no work anybody asked for."""
        return Work(flops=2.0 * self._config.products * self._config.size**3)
