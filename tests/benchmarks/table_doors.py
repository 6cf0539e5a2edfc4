"""Does a loop say the same of a toggle as a script and as a class? Five loops through both doors.

    python tests/benchmarks/table_doors.py [--rounds 8] [--toggles amp,optimizer] [--clock wall]
        [--folder FOLDER] [measure.iterations=20 ...]

Both doors train the same model on the same rows; each is one sweep. Prints an effect's interval through
either door and whether the two overlap. Further overrides are those of every sweep; finished sweeps in the
folder are read again and not measured again. CPU time tells nothing of worker processes, and more than wall
time where others have the cores.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

MODELS = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

class Attention(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.embed, self.norm = nn.Embedding(97, width), nn.LayerNorm(width)
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)
        self.out = nn.Linear(width, 97)

    def forward(self, x):
        y = self.norm(self.embed(x))
        return self.out(y + self.attend(y, y, y, need_weights=False)[0]).flatten(0, 1)

class Recurrent(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed, self.cells = nn.Embedding(97, width), nn.LSTM(width, width)
        self.out = nn.Linear(width, 97)

    def forward(self, x):
        return self.out(self.cells(self.embed(x).transpose(0, 1))[0]).transpose(0, 1).flatten(0, 1)

def perceptron():
    layers = [nn.Linear(64, 256), nn.GELU(), *(nn.Linear(256, 256), nn.GELU()) * 6, nn.Linear(256, 10)]
    return nn.Sequential(*layers), torch.randn(4096, 64), torch.randint(10, (4096,))

def convolutions():
    seen = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU()]
    model = nn.Sequential(*seen, nn.Flatten(), nn.LazyLinear(10))
    model(torch.zeros(1, 1, 28, 28))
    return model, torch.randn(2048, 1, 28, 28), torch.randint(10, (2048,))

def attention():
    return Attention(), torch.randint(97, (2048, 32)), torch.randint(97, (2048, 32))

def recurrent():
    return Recurrent(), torch.randint(97, (2048, 24)), torch.randint(97, (2048, 24))

def deep():
    layers = [layer for _ in range(60) for layer in (nn.Linear(48, 48), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(48, 10)), torch.randn(4096, 48), torch.randint(10, (4096,))

def built(name):
    model, rows, targets = globals()[name]()
    return model, TensorDataset(rows, targets)

def loss(model, rows, targets):
    return cross_entropy(model(rows), targets.flatten())
"""

SCRIPT = """
import torch
from torch.utils.data import DataLoader
from models import built, loss

torch.manual_seed(0)
model, rows = built("{name}")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(1000):
    for batch in DataLoader(rows, 32, shuffle=True, drop_last=True):
        optimizer.zero_grad(set_to_none=False)
        value = loss(model, *batch)
        value.backward()
        optimizer.step()
"""

CLASSES = """
from dataclasses import dataclass

import torch
from models import built, loss
from perfsweep.workloads.training import Parts, Training, shared_toggles

@dataclass
class Config:
    name: str = ""
    batch_size: int = 32
    loop: str = "perceptron"

class Loop(Training):
    Config = Config
    plain = {"keep": ("off", "default")}
    toggles = shared_toggles("amp", "compile", "optimizer", "num_workers", compile=plain)

    def build(self, config, levels, context):
        model, rows = built(config.loop)
        make = lambda parameters, **how: torch.optim.AdamW(parameters, lr=1e-3, **how)
        return Parts(model=model, data=rows, loss=loss, optimizer=make)
"""

LOOPS = ("perceptron", "convolutions", "attention", "recurrent", "deep")
LEVELS = {"amp": "bf16", "compile": "default", "optimizer": "fused", "num_workers": "2"}


@dataclass(frozen=True)
class Interval:
    """A ratio of times minus one, with its 95 % interval, in percent."""

    effect: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.effect:+7.1f} % [{self.low:+7.1f}, {self.high:+7.1f}]"

    def overlaps(self, other: Interval) -> bool:
        """Whether both hold some value."""
        return self.low <= other.high and other.low <= self.high


def write(folder: Path) -> None:
    """The loops, as scripts and as a class."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "models.py").write_text(MODELS)
    (folder / "classes.py").write_text(CLASSES)
    for name in LOOPS:
        (folder / f"{name}.py").write_text(SCRIPT.format(name=name))


def measured(folder: Path, name: str, door: str, levels: Mapping[str, str], measure: Sequence[str]) -> Path:
    """The folder of a loop's sweep through one door, with its tables."""
    workload = {
        "script": ("workload=script", f"workload.path={name}.py"),
        "class": ("workload=classes:Loop", f"workload.loop={name}"),
    }[door]
    axes = (f"axes.{toggle}=[{level}]" for toggle, level in levels.items())
    subprocess.run(
        [*(sys.executable, "-m", "perfsweep", "sweep"), *workload, f"name={name}-{door}", *axes, *measure],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return folder / "runs" / f"{name}-{door}"


def effects(runs: Path, clock: str) -> Iterator[tuple[str, Interval | None]]:
    """The effects that a sweep's table holds, by one of its clocks; None where a level does not act."""
    names = tuple(f"{clock}_{one}" for one in ("ratio", "low", "high"))
    for row in pl.read_parquet(runs / "tables" / "effects.parquet").iter_rows(named=True):
        values = [row[one] for one in names]
        measured = None if None in values else Interval(*(100 * (value - 1) for value in values))
        yield row["toggle"], measured


def verdict(script: Interval | None, loop: Interval | None) -> str:
    """Whether both doors say the same."""
    if script is None or loop is None:
        return "neither acts" if script is loop else "APART"
    return "overlap" if script.overlaps(loop) else "APART"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("overrides", nargs="*", default=["measure.iterations=40", "measure.warmup_max=60"])
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--toggles", default=",".join(LEVELS))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "doors")
    options = parser.parse_args()
    folder, measure = options.folder.resolve(), [f"measure.rounds={options.rounds}", *options.overrides]
    levels = {toggle: LEVELS[toggle] for toggle in options.toggles.split(",")}
    write(folder)
    for name in LOOPS:
        sweeps = [measured(folder, name, door, levels, measure) for door in ("script", "class")]
        script, loop = (dict(effects(sweep, options.clock)) for sweep in sweeps)
        for toggle, level in levels.items():
            both = script[toggle], loop[toggle]
            print(
                f"{name:13} {toggle + '=' + level:20} {both[0]!s:32} {both[1]!s:32} {verdict(*both)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
