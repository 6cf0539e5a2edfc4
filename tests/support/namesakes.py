"""A user's folder whose packages have the names of perfsweep's folders, with a script and a workload."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

MODULES = (
    "conf/values",
    "pipelines/model",
    "slurm/site",
    "tests/conftest",
    "workloads/peaks",
    "workloads/api",
)
"""Some are modules of ours too: a wrong one would be imported without a word."""

TRAIN = """
import torch
from conf.values import MINE
from slurm.site import MINE
from tests.conftest import MINE
from workloads import peaks
from workloads.api import MINE

assert peaks.MINE
from pipelines.model import MINE, net

model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(200):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
"""

HALVING = """
from dataclasses import dataclass

import torch
from conf.values import MINE
from workloads.peaks import MINE
from pipelines.model import net

from perfsweep.workloads.api import Check, Evidence, Level, Toggle, Workload


@dataclass
class Config:
    size: int = 64


class Halving(Workload):
    Config = Config
    toggles = (Toggle("add", (Level("twice"), Level("once", witness="additions")), "in parts, or at once"),)
    checks = (Check("total"),)
    unit = "row"

    def setup(self, config, levels, context):
        self.total = torch.zeros(config.size, dtype=torch.float64)
        self.parts = (1.0,) if levels["add"] == "once" else (0.5, 0.5)
        self.additions = self.steps = 0

    def step(self, clock):
        for part in self.parts:
            self.total += part
        self.additions += len(self.parts)
        self.steps += 1

    def progress(self):
        return float(self.steps * len(self.total))

    def evidence(self):
        return Evidence({"total": self.total})

    def counters(self):
        return {"additions": self.additions}
"""

SCRIPT = ("workload=script", "workload.path=train.py", "axes.optimizer=[foreach]")
SMALL = (
    *("measure.rounds=1", "measure.servers=1", "measure.repeats=0", "measure.iterations=8"),
    *("measure.timed_parity=false", "measure.look=true", "tracking=disabled", "cluster=local"),
)


def namesakes(folder: Path, *, packages: bool = True) -> Path:
    """Write ``train.py``, ``workloads/halving.py`` and what they import; `packages` have an ``__init__``."""
    for name in MODULES:
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("MINE = True\n")
        if packages:
            (file.parent / "__init__.py").touch()
    with (folder / "pipelines/model.py").open("a") as model:
        model.write("import torch\n\n\ndef net():\n    return torch.nn.Linear(8, 1)\n")
    (folder / "workloads/halving.py").write_text(HALVING)
    (folder / "train.py").write_text(TRAIN)
    return folder


def outcomes(folder: Path) -> set[str]:
    """How the trials of the sweeps in this folder ended."""
    return {json.loads(file.read_text())["outcome"] for file in (folder / "runs").rglob("record.json")}


def python(folder: Path, *words: str, status: int = 0, stdin: str = "", **env: str) -> str:
    """Start Python in the folder; what it printed, once it has ended with the status."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", **env},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == status, said
    return said
