"""A sound workload, and the same with one defect each: what `perfsweep check` must tell apart."""

from __future__ import annotations

import os
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
    Parity,
    Toggle,
    Workload,
)

SHARED: list[float] = []
"""Module-level state, which no workload should keep."""


@dataclass
class Config:
    """Rows of the product that one iteration computes."""

    rows: int = 16


class Sound(Workload):
    """x <- tanh(x W), in one product or in two halves, in double precision or rounded."""

    Config = Config
    toggles = (
        Toggle(
            "halves", (Level("off"), Level("on", witness="products")), "two products of half the rows", "toy"
        ),
        Toggle(
            "rounded",
            (Level("off"), Level("on", parity=Parity.TOLERANCE, bounds={"x": 0.1, "sums": 0.1})),
            "bf16",
            "toy",
        ),
    )
    checks = (Check("x"), Check("sums"))
    unit = "row"

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        self.context, self.levels, self.rows = context, levels, config.rows
        draw = torch.Generator().manual_seed(context.seed)
        self.x = torch.randn(config.rows, 8, generator=draw, dtype=torch.float64)
        self.weight = torch.randn(8, 8, generator=draw, dtype=torch.float64)
        self.pieces = 2 if levels.get("halves") == "on" else 1
        self.products, self.steps, self.sums, self.late = 0, 0, [], None

    def step(self, clock: Clock) -> None:
        parts = [torch.tanh(part @ self.weight) for part in self.x.chunk(self.pieces)]
        self.products += self.pieces
        self.x = torch.cat(parts)
        if self.levels.get("rounded") == "on":
            self.x = self.x.bfloat16().double()
        self.read()
        self.steps += 1

    def read(self) -> None:
        """An iteration late, when the value has arrived by itself."""
        if self.late is not None:
            self.sums.append(self.late.item())
        self.late = self.x.sum()

    def progress(self) -> float:
        return float(self.steps * self.rows)

    def evidence(self) -> Evidence:
        return Evidence({"x": self.x, "sums": torch.tensor(self.sums)})

    def counters(self) -> dict[str, float]:
        return {"products": self.products}


class Quiet(Sound):
    """A level that acts where no counter looks: through a variable of the process."""

    toggles = (
        Toggle("quiet", (Level("off"), Level("on", env={"PERFSWEEP_TOY": "on"})), "set a variable", "toy"),
    )


class Unseeded(Sound):
    """Set-up draws from somewhere else than the seed."""

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        super().setup(config, levels, context)
        self.weight = self.weight + int.from_bytes(os.urandom(2), "big") / 1e6


class NoEvidence(Sound):
    """A check that evidence knows nothing of."""

    checks = (*Sound.checks, Check("losses"))


class Wrong(Sound):
    """Two halves compute something slightly else."""

    def step(self, clock: Clock) -> None:
        super().step(clock)
        if self.pieces == 2:
            self.x = self.x * (1 + 1e-6)


class Drawn(Sound):
    """Has a level that draws at random."""

    toggles = (Toggle("rounded", (Level("off"), Level("on", parity=Parity.STOCHASTIC)), "up or down", "toy"),)


class Reads(Sound):
    """Reads what it has just computed, in each iteration."""

    def read(self) -> None:
        self.sums.append(self.x.sum().item())


class Global(Sound):
    """State in the module, which a second life finds."""

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        super().setup(config, levels, context)
        SHARED.append(1.0)
        self.x = self.x * len(SHARED)


class Setting(Sound):
    """A setting of torch that is not put back."""

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        super().setup(config, levels, context)
        torch.set_float32_matmul_precision("medium")


class Cached(Sound):
    """What is cached is not what would be computed anew."""

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        super().setup(config, levels, context)
        file = context.cache_dir / "weight.pt"
        if file.exists():
            self.weight = torch.load(file) * 1.5
        else:
            torch.save(self.weight, file)


class Counted(Sound):
    """Sound: its evidence takes more digits in a later process, of a number that no check compares."""

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        super().setup(config, levels, context)
        used = context.cache_dir / "used"
        self.used = int(used.read_text()) if used.exists() else 1
        used.write_text(str(self.used * 10**9))

    def evidence(self) -> Evidence:
        found = super().evidence()
        return Evidence(found.tensors, {"used": self.used / 3})


class Raises(Sound):
    """Breaks in its third iteration."""

    def step(self, clock: Clock) -> None:
        super().step(clock)
        if self.steps == 3:
            raise ValueError("the toy was told to break: [batch, dim] is no shape [/batch]")


class Job(Sound):
    """A job of five iterations that starts anew."""

    shape = "job"

    def done(self) -> bool:
        return self.steps >= 5

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        super().setup(config, levels, context)
        self.start = self.x

    def reset(self) -> None:
        self.x, self.steps, self.sums, self.late = self.start, 0, [], None


class StaleJob(Job):
    """A job that goes on where the last one ended."""

    def reset(self) -> None:
        self.steps, self.sums, self.late = 0, [], None


class InPieces(Sound):
    """A size that one configuration makes the same as the baseline: rows at once."""

    toggles = (
        Toggle(
            "piece",
            (Level("all"), Level(16, witness="products")),
            "rows at once",
            "toy",
            Numbers(1, like=Level(0, witness="products")),
        ),
    )

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        super().setup(config, levels, context)
        piece = levels.get("piece", "all")
        self.pieces = 1 if piece == "all" else max(1, config.rows // int(piece))
